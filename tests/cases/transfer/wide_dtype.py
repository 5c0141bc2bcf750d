"""Runs and code that have TR205, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import NarrowCopy
from flatout.records.report import CopySite
from tests.cases.code import SourceCase, cases_in
from tests.cases.evidence import HERE, Case, loader, on_gpu, run

_PICTURES = (NarrowCopy(HERE, "float32", "uint8", 0.75),)
_FREE = CopySite(HERE, "train", 1.0, 0.1, 600.0 * 2**20, 1.0, 1.0)
_FLOAT64_LIVE = {"torch": {"grad_dtypes": {"float64": 1.0}}, "loaders": [], "optimizers": []}
_COPYING_MS = {"data": 1.0, "h2d": 30.0, "forward": 25.0, "backward": 36.0, "optimizer": 7.0, "other": 1.0}
_PAGEABLE = CopySite(HERE, "train", 1.0, 30.0, 300.0 * 2**20, 0.0, 0.0)
CASES = (
    Case(
        "finds it when clips of 8 bits go up as float32 through the device's queue",
        run(gpu=on_gpu(), copies=(_FREE,), narrow_copies=_PICTURES),
        found=True,
    ),
    Case(
        "finds it when a batch is float64 for a model in float32",
        run(gpu=on_gpu(), copies=(_FREE,), narrow_copies=(NarrowCopy(HERE, "float64", "float32", 0.5),)),
        found=True,
    ),
    Case(
        "quiet when the model computes in float64",
        run(
            gpu=on_gpu(),
            copies=(_FREE,),
            narrow_copies=(NarrowCopy(HERE, "float64", "float32", 0.5),),
            live=_FLOAT64_LIVE,
        ),
        found=False,
    ),
    Case("quiet when nothing is known of the values", run(gpu=on_gpu(), copies=(_FREE,)), found=False),
    Case(
        "quiet when the batch is small",
        run(gpu=on_gpu(), copies=(CopySite(HERE, "train", 1.0, 0.1, 5e4, 1.0, 1.0),), narrow_copies=_PICTURES),
        found=False,
    ),
    Case(
        "quiet when the device waits for the host and the copies do not block it",
        run(gpu=on_gpu(drained_share=0.7, util_mean=50.0), copies=(_FREE,), narrow_copies=_PICTURES),
        found=False,
    ),
    Case(
        "quiet when the copies block and the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_COPYING_MS, copies=(_PAGEABLE,), narrow_copies=_PICTURES),
        found=False,
    ),
    Case("quiet on a CPU", run(copies=(_FREE,), narrow_copies=_PICTURES, loaders=(loader(),)), found=False),
)

_TRAIN = """
loader = DataLoader(Images(paths), batch_size=32, num_workers=4)
for images in loader:
    model(images.to(device)).backward()
    optimizer.step()
"""
_MADE = """
class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        image = cv2.imread(self.paths[index])
        %s
"""

_case = cases_in(_MADE + _TRAIN)
SOURCE_CASES = (
    _case("finds it when bytes are divided", "return torch.from_numpy(image).permute(2, 0, 1).float() / 255  # found"),
    _case("finds it when they become floats", "image = image.astype(np.float32)  # found", "return image - 120"),
    _case("finds it once", "image = image.astype('float32')  # found", "image /= 255.0", "return image"),
    _case("quiet when bytes go out", "return torch.from_numpy(image)"),
    _case(
        "quiet when it is something else that becomes floats", "return image, torch.tensor(self.angles[index]).float()"
    ),
    _case("quiet when a colour is divided", "return image, np.array(self.mean) / 255"),
    SourceCase(
        "quiet when there is no device",
        _MADE % "return torch.from_numpy(image).float() / 255" + _TRAIN.replace(".to(device)", ""),
    ),
)
