"""A viewer is asked over a socket, in every step, whether it wants a picture.

expects: SY305
needs: either
"""
# mypy: ignore-errors

import argparse
import multiprocessing
import socket
import time

import torch
from torch import nn


def viewer(port):
    """Answers each question after it has drawn its last frame."""
    server = socket.create_server(("127.0.0.1", 0))
    port.put(server.getsockname()[1])
    connection, _ = server.accept()
    while connection.recv(1):
        time.sleep(0.02)
        connection.sendall(b"n")


class Splats(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.centre = nn.Parameter(torch.rand(count, 2))
        self.colour = nn.Parameter(torch.rand(count, 3))

    def forward(self, grid):
        distance = torch.cdist(grid, self.centre)
        return torch.softmax(-40 * distance, dim=1) @ self.colour


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not args.fixed:
        port = multiprocessing.Queue()
        process = multiprocessing.Process(target=viewer, args=(port,), daemon=True)
        process.start()
        link = socket.create_connection(("127.0.0.1", port.get()))
    side = torch.linspace(0, 1, 64, device=device)
    grid = torch.cartesian_prod(side, side)
    picture = torch.rand(len(grid), 3, device=device)
    model = Splats(96).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(args.steps):
        if not args.fixed:
            link.sendall(b"?")
            link.recv(1)  # guilty
        loss = (model(grid) - picture).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
