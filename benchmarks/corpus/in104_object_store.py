"""Every sample is an HTTP request to a store that takes its time.

expects: IN104
needs: either
"""
# mypy: ignore-errors

import argparse
import io
import multiprocessing
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from making import npy_bytes
from torch import nn
from torch.utils.data import DataLoader, Dataset

BODY = npy_bytes(np.ones((64, 40), np.float32))


def store(port, latency_s):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(latency_s)
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.put(server.server_address[1])
    server.serve_forever()


class Remote(Dataset):
    def __init__(self, url):
        self.url = url

    def __len__(self):
        return 4000

    def __getitem__(self, key):
        with urllib.request.urlopen(f"{self.url}/{key}") as answer:
            sample = np.load(io.BytesIO(answer.read()))
        return torch.from_numpy(sample)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(40, 96, batch_first=True)
        self.head = nn.Linear(96, 40)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    port = multiprocessing.Queue()
    server = multiprocessing.Process(target=store, args=(port, 0.0 if args.fixed else 0.05), daemon=True)
    server.start()
    dataset = Remote(f"http://127.0.0.1:{port.get()}")
    loader = DataLoader(dataset, batch_size=4, num_workers=2)  # guilty
    model = Autoencoder().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    batches = iter(loader)
    for _ in range(args.steps):
        x = next(batches).to(device)
        optimizer.zero_grad()
        (model(x) - x).abs().mean().backward()
        optimizer.step()
    server.terminate()


if __name__ == "__main__":
    main()
