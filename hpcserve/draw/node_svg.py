"""One node type as a picture: GPUs, the NVLink that joins them, the NICs nearest to them, and what each carries."""

from hpcserve.draw.canvas import Canvas
from hpcserve.draw.site_words import gb, rate_words
from hpcserve.nouns import Nic, NodeType, Rate

__all__ = ["draw_node_type", "node_type_size"]

_PAD = 14.0
_LETTER = 7.0
_STEP = 82.0
"""From one GPU to the next: a NIC's name and rate fit below it."""
_GPU_WIDTH, _GPU_HEIGHT = 70.0, 30.0
_NIC_HEIGHT = 38.0
_MOST_DRAWN = 16
"""GPUs or NICs of a node that are drawn one by one; the words say the rest."""
_NVLINK_HEIGHT = 46.0
"""Room above the GPUs for the line that joins them, where there is NVLink."""
_NVLINK, _GPU, _NIC = "#00906a", "#5a6b7b", "#0072b2"
_INK_ON_COLOUR = "#ffffff"


def node_type_size(kind: NodeType) -> tuple[float, float]:
    """Width and height in pixels of the picture of a node type."""
    places = _nic_places(kind)
    right = max([_step_at(min(kind.gpu.count, _MOST_DRAWN)), *(x + width for x, width in places.values())])
    words = max(map(len, (_first_line("", kind), *_foot(kind)))) + 12
    return max(right + _PAD, words * _LETTER), _nic_y(kind) + _NIC_HEIGHT + 18 * len(_foot(kind)) + 2 * _PAD


def draw_node_type(canvas: Canvas, name: str, kind: NodeType, *, x: float, y: float) -> None:
    """Draw a node type with its top left at `x`, `y`."""
    width, height = node_type_size(kind)
    canvas.box(x, y, width, height, kind="ground", radius=8)
    canvas.box(x, y, width, height, radius=8)
    canvas.text(x + _PAD, y + 22, _first_line(name, kind))
    drawn = min(kind.gpu.count, _MOST_DRAWN)
    noun = "slot" if kind.gpu.model == "cpu" else "GPU"
    gpu_y, nic_y = y + _gpu_y(kind), y + _nic_y(kind)
    for island in kind.nvlink:
        inside = [gpu for gpu in island.gpus if gpu < drawn]
        if inside:
            left, right = x + _step_at(min(inside)), x + _step_at(max(inside)) + _GPU_WIDTH
            canvas.stroke([(left, gpu_y - 14), (right, gpu_y - 14)], colour=_NVLINK, width=4, tip=island.rate.source)
            for gpu in inside:
                middle = x + _step_at(gpu) + _GPU_WIDTH / 2
                canvas.stroke([(middle, gpu_y - 14), (middle, gpu_y)], colour=_NVLINK, width=2)
            canvas.text(left, gpu_y - 24, f"NVLink {_short(island.rate)} each two", colour=_NVLINK)
    places = _nic_places(kind)
    for nic in kind.nics:
        if nic.name in places:
            left, wide = places[nic.name]
            for gpu in nic.gpus:
                if gpu < drawn:
                    start = x + _step_at(gpu) + _GPU_WIDTH / 2
                    canvas.wire([(start, gpu_y + _GPU_HEIGHT), (x + left + wide / 2, nic_y)])
    for gpu in range(drawn):
        tip = f"GPU {gpu}: {kind.gpu.model}" + (f", NUMA node {kind.gpu.numa[gpu]}" if kind.gpu.numa else "")
        left = x + _step_at(gpu)
        canvas.filled(left, gpu_y, _GPU_WIDTH, _GPU_HEIGHT, colour=_GPU, tip=tip)
        canvas.text(left + _GPU_WIDTH / 2, gpu_y + 20, f"{noun} {gpu}", anchor="middle", colour=_INK_ON_COLOUR)
    for nic in kind.nics:
        if nic.name in places:
            _draw_nic(canvas, nic, x=x + places[nic.name][0], y=nic_y, width=places[nic.name][1])
    for number, line in enumerate(_foot(kind)):
        canvas.text(x + _PAD, nic_y + _NIC_HEIGHT + 24 + 18 * number, line, kind="soft")


def _draw_nic(canvas: Canvas, nic: Nic, *, x: float, y: float, width: float) -> None:
    canvas.filled(x, y, width, _NIC_HEIGHT, colour=_NIC, tip=f"{nic.name}: {nic.kind.value}, {nic.rate.source}")
    canvas.text(x + width / 2, y + 15, nic.name, anchor="middle", colour=_INK_ON_COLOUR)
    canvas.text(x + width / 2, y + 31, _short(nic.rate), anchor="middle", colour=_INK_ON_COLOUR)


def _short(rate: Rate) -> str:
    return "unknown" if rate.unknown else f"{gb(rate.gb_per_s)} GB/s"


def _gpu_y(kind: NodeType) -> float:
    return 40.0 + (_NVLINK_HEIGHT if kind.nvlink else 0.0)


def _nic_y(kind: NodeType) -> float:
    return _gpu_y(kind) + 64.0


def _step_at(gpu: int) -> float:
    return _PAD + gpu * _STEP


def _nic_places(kind: NodeType) -> dict[str, tuple[float, float]]:
    """Left edge and width of each NIC that is drawn: below the middle of its GPUs, never over another."""
    drawn = kind.nics[:_MOST_DRAWN]
    places: dict[str, tuple[float, float]] = {}
    free = _PAD
    for nic in sorted(drawn, key=lambda one: (_middle(kind, one), one.name)):
        width = max(_GPU_WIDTH, max(len(nic.name), len(_short(nic.rate))) * _LETTER + 8)
        left = max(free, _middle(kind, nic) - width / 2)
        places[nic.name] = (left, width)
        free = left + width + 8
    return places


def _middle(kind: NodeType, nic: Nic) -> float:
    gpus = [min(gpu, _MOST_DRAWN - 1) for gpu in nic.gpus] or [min(kind.gpu.count, _MOST_DRAWN) - 1]
    return sum(map(_step_at, gpus)) / len(gpus) + _GPU_WIDTH / 2


def _first_line(name: str, kind: NodeType) -> str:
    gpu = kind.gpu
    return f"{name}: {gpu.count} x {gpu.model} of {gpu.memory_gib:g} GiB, {kind.cores} cores, {kind.memory_gib:g} GiB"


def _foot(kind: NodeType) -> list[str]:
    """What the picture cannot show: the host's path, rails, what is not drawn."""
    lines = [f"without NVLink between two GPUs: {rate_words(kind.host_path)}"]
    rails = sorted({nic.rail for nic in kind.nics if nic.rail is not None})
    if rails:
        lines.append(f"NICs are on rails {rails[0]} to {rails[-1]}, one leaf switch for each")
    kinds = dict.fromkeys(nic.kind.value for nic in kind.nics)
    lines.append(f"NICs: {', '.join(kinds)}, {rate_words(kind.nics[0].rate)}")
    more = max(kind.gpu.count - _MOST_DRAWN, 0), max(len(kind.nics) - _MOST_DRAWN, 0)
    if any(more):
        lines.append(f"and {more[0]} more GPUs, {more[1]} more NICs")
    return lines
