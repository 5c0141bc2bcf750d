"""Code that has IN116, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase

_TRAIN = """
class Images(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return decode(index)

loader = DataLoader(Images(), %s)%s
for images in loader:
    %s
    loss = model(images.to(device)).mean()
    loss.backward()
    optimizer.step()
"""
SOURCE_CASES = (
    SourceCase("finds it when it is written down", _TRAIN % ("batch_size=1, num_workers=4", "  # found", "pass")),
    SourceCase("finds it when it is left out", _TRAIN % ("shuffle=True, num_workers=4", "  # found", "pass")),
    SourceCase("quiet when it is a setting", _TRAIN % ("batch_size=args.batch_size", "", "pass")),
    SourceCase("quiet when the dataset hands out batches", _TRAIN % ("batch_size=1", "", "images = images[0]")),
    SourceCase("quiet when the batches are made elsewhere", _TRAIN % ("batch_sampler=batches", "", "pass")),
    SourceCase("quiet with a batch", _TRAIN % ("batch_size=32", "", "pass")),
)
