"""Synthetic road scenes: a curved road with its surroundings, seen by the front camera and from above."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from bev.grid import CLASSES, Polygon

Floats = npt.NDArray[np.float64]

FOCAL = 0.79  # of the image's width
CAMERA_HEIGHT = 1.5
NEAR = 0.5
FAR = 70.0

# width, length, height in metres, and how many of them a scene has at most
OBJECTS = {
    "car": (1.9, 4.5, 1.6, 5),
    "truck": (2.5, 7.5, 3.2, 2),
    "bus": (2.8, 11.0, 3.4, 1),
    "trailer": (2.6, 9.0, 3.6, 1),
    "pedestrian": (0.8, 0.8, 1.8, 5),
    "motorcycle": (0.9, 2.1, 1.4, 2),
    "bicycle": (0.8, 1.8, 1.3, 2),
    "traffic_cone": (0.6, 0.6, 0.9, 4),
    "barrier": (0.7, 2.6, 1.0, 3),
}
COLOURS = {
    "background": (92, 112, 70),
    "drivable_area": (88, 88, 92),
    "ped_crossing": (205, 205, 200),
    "walkway": (150, 138, 126),
    "carpark": (110, 104, 120),
    "car": (178, 40, 44),
    "truck": (40, 84, 170),
    "bus": (222, 178, 40),
    "trailer": (230, 230, 236),
    "pedestrian": (200, 120, 160),
    "motorcycle": (30, 30, 34),
    "bicycle": (40, 160, 150),
    "traffic_cone": (240, 110, 20),
    "barrier": (210, 60, 60),
}


@dataclass(frozen=True, slots=True)
class Box:
    """Something standing on the ground."""

    kind: str
    corners: Floats  # [4, 2]: x, z
    height: float


@dataclass(frozen=True, slots=True)
class Scene:
    """What lies on the ground, what stands on it, and the camera that sees it."""

    ground: list[tuple[str, Floats]]
    boxes: list[Box]
    intrinsics: Floats  # [3, 3]
    camera_to_ego: Floats  # [3, 4]

    def polygons(self) -> list[Polygon]:
        """The map label, in drawing order."""
        shapes = [*self.ground, *((box.kind, box.corners) for box in self.boxes)]
        return [(CLASSES.index(kind), [(round(x, 3), round(z, 3)) for x, z in points]) for kind, points in shapes]


def random_scene(rng: np.random.Generator, width: int, height: int) -> Scene:
    """A road with its surroundings, drawn from rng."""
    z = np.linspace(0.0, FAR, 24)
    centre = rng.uniform(-3, 3) + rng.uniform(-0.15, 0.15) * z + rng.uniform(-0.004, 0.004) * z**2
    half = rng.uniform(3.5, 8.0)
    walk = rng.uniform(1.5, 3.5)

    def strip(left: float, right: float, part: slice = slice(None)) -> Floats:
        edge = np.stack([centre[part] + left, z[part]], 1)
        other = np.stack([centre[part] + right, z[part]], 1)
        return np.concatenate([edge, other[::-1]])

    ground = [("walkway", strip(-half - walk, half + walk)), ("drivable_area", strip(-half, half))]
    if rng.random() < 0.7:
        start = int(rng.integers(2, 14))
        ground.append(("ped_crossing", strip(-half, half, slice(start, start + 2))))
    if rng.random() < 0.7:
        start, side = int(rng.integers(1, 12)), half + walk
        depth = rng.uniform(6, 12)
        low, high = (side, side + depth) if rng.random() < 0.5 else (-side - depth, -side)
        ground.append(("carpark", strip(low, high, slice(start, start + int(rng.integers(3, 7))))))

    boxes = []
    for kind, (wide, long, tall, most) in OBJECTS.items():
        for _ in range(int(rng.integers(0, most + 1))):
            away = rng.uniform(5, 48)
            reach = half + walk if kind in ("pedestrian", "bicycle", "barrier") else half
            middle = np.array([np.interp(away, z, centre) + rng.uniform(-reach, reach), away])
            boxes.append(Box(kind, _footprint(rng, middle, wide, long), tall))
    boxes.sort(key=lambda box: -float(box.corners[:, 1].mean()))
    return Scene(ground, boxes, *_camera(rng, width, height))


def _footprint(rng: np.random.Generator, middle: Floats, wide: float, long: float) -> Floats:
    corners = np.array([[-wide, -long], [wide, -long], [wide, long], [-wide, long]]) / 2 * rng.uniform(0.9, 1.1)
    turn = rng.normal(0, 0.15)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    turned: Floats = corners @ rotation.T + middle
    return turned


def _camera(rng: np.random.Generator, width: int, height: int) -> tuple[Floats, Floats]:
    focal = FOCAL * width
    intrinsics = np.array([[focal, 0, width / 2], [0, focal, height * 0.53], [0, 0, 1]])
    pitch, yaw = rng.normal(0, 0.01, 2)
    about_x = np.array([[1, 0, 0], [0, np.cos(pitch), -np.sin(pitch)], [0, np.sin(pitch), np.cos(pitch)]])
    about_y = np.array([[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]])
    position = np.array([[0.0], [-CAMERA_HEIGHT + rng.normal(0, 0.05)], [0.0]])  # y points down, the ground is y = 0
    return intrinsics, np.concatenate([about_y @ about_x, position], 1)


def render(scene: Scene, rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """What the camera sees, with the grain of a real sensor."""
    image = Image.new("RGB", (width, height), (168, 192, 216))
    draw = ImageDraw.Draw(image)
    horizon = np.array([[-400.0, NEAR], [400.0, NEAR], [400.0, 400.0], [-400.0, 400.0]])
    for kind, points in [("background", horizon), *scene.ground]:
        _fill(draw, scene, np.insert(points, 1, 0.0, axis=1), COLOURS[kind])
    for box in scene.boxes:
        _draw_box(draw, scene, box, rng)
    pixels = np.asarray(image, dtype=np.float32)
    # Coarse patches give the surfaces texture, fine noise makes the file as costly to decode as a photograph.
    coarse = rng.normal(0, 10, (height // 8 + 1, width // 8 + 1, 1)).astype(np.float32)
    coarse = coarse.repeat(8, 0).repeat(8, 1)[:height, :width]
    fine = rng.standard_normal((height, width, 3), dtype=np.float32) * 9
    light = np.float32(rng.uniform(0.75, 1.2))
    return Image.fromarray(np.clip(pixels * light + coarse + fine, 0, 255).astype(np.uint8))


def _draw_box(draw: ImageDraw.ImageDraw, scene: Scene, box: Box, rng: np.random.Generator) -> None:
    base = np.insert(box.corners, 1, 0.0, axis=1)
    top = base - [0.0, box.height, 0.0]
    shade = rng.uniform(0.8, 1.1)
    sides = [np.stack([base[i], base[(i + 1) % 4], top[(i + 1) % 4], top[i]]) for i in range(4)]
    sides.sort(key=lambda side: -float(side[:, 2].mean()))
    for face, tone in [*((side, 0.6 + 0.1 * i) for i, side in enumerate(sides)), (top, 1.1)]:
        red, green, blue = (min(255, int(part * tone * shade)) for part in COLOURS[box.kind])
        _fill(draw, scene, face, (red, green, blue))


def _fill(draw: ImageDraw.ImageDraw, scene: Scene, points: Floats, colour: tuple[int, int, int]) -> None:
    rotation, position = scene.camera_to_ego[:, :3], scene.camera_to_ego[:, 3]
    seen = _clip((points - position) @ rotation)
    if len(seen) >= 3:
        pixels = seen @ scene.intrinsics.T
        corners = pixels[:, :2] / pixels[:, 2:]
        draw.polygon([(float(x), float(y)) for x, y in corners], fill=colour)


def _clip(points: Floats) -> Floats:
    """Cut away what is behind the camera."""
    kept: list[Floats] = []
    for here, there in zip(points, np.roll(points, -1, axis=0), strict=True):
        if here[2] >= NEAR:
            kept.append(here)
        if (here[2] >= NEAR) != (there[2] >= NEAR):
            kept.append(here + (there - here) * (NEAR - here[2]) / (there[2] - here[2]))
    return np.array(kept)
