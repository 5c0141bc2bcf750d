"""Shows the avatar in the viewer while it trains."""

from __future__ import annotations

import torch
from torch import Tensor

from splat.config import EXPRESSIONS, JOINTS
from splat.dataset import FAR, NEAR
from splat.gaussians import GaussianModel
from splat.make_data import looking_at_head
from splat.mesh import Head
from splat.options import Options
from splat.render import Renderer, View
from splat.viewer import ViewerServer, ViewerWindow, as_row, orbit_position


class LiveView:
    """The viewer's server, and the window that belongs to it."""

    def __init__(self, options: Options, model: GaussianModel, mesh: Head, render: Renderer) -> None:
        self._model, self._mesh, self._render = model, mesh, render
        self._per_tile = options.preset.per_tile
        self._server = ViewerServer(options.port)
        side, paused = options.preset.resolution, options.viewer == "paused"
        self._window = ViewerWindow(self._server.port, side, options.viewer_fps, paused)
        self._window.start()

    @classmethod
    def of(cls, options: Options, model: GaussianModel, mesh: Head, render: Renderer) -> LiveView | None:
        """The live view that `--viewer` asks for."""
        return None if options.viewer == "off" else cls(options, model, mesh, render)

    def serve(self) -> None:
        """Answer the viewer until it lets training go on."""
        self._server.try_connect()
        while self._server.connected:
            message = self._server.receive()
            if message is None:
                break
            if "camera" in message:
                self._server.send(self._picture(message["camera"]["angle"], message["camera"]["side"]))
            if message.get("train"):
                break

    @torch.no_grad()
    def _picture(self, angle: float, side: int) -> Tensor:
        device = self._model.binding.device
        camera = looking_at_head(orbit_position(angle, 4.0), side, side)
        view = View(
            matrix=as_row(camera["matrix"], device),
            focal=as_row(camera["focal"], device),
            centre=as_row(camera["centre"], device),
            position=as_row(camera["position"], device),
            depth_range=as_row([NEAR, FAR], device),
            background=as_row([1.0, 1.0, 1.0], device),
        )
        neutral = self._mesh.posed(
            torch.zeros(1, EXPRESSIONS, device=device),
            torch.zeros(1, JOINTS, 3, device=device),
            torch.zeros(1, 3, device=device),
        )
        return self._render(self._model.posed(neutral), view, side, side, self._per_tile).image[0]

    @property
    def shown(self) -> int:
        """Pictures the window has shown."""
        return self._window.shown

    def close(self) -> None:
        self._server.close()
        self._window.join(timeout=5)
