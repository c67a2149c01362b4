"""Saving and loading of networks: constructor arguments as JSON, tensors as safetensors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from jlgcn._schema import Check, record
from jlgcn._validation import check_finite
from jlgcn.nn.options import JLGCNOptions

if TYPE_CHECKING:
    from jlgcn._saved import Schema

#: Bound of a number of channels in a saved network.
MAX_CHANNELS = 10**8
#: Bound of a number of layers in a saved network.
MAX_LAYERS = 1000

_VERSION = 1
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class SavedModule(nn.Module):
    """Base class of networks with :meth:`save` and :meth:`load`."""

    #: Type and range of every argument of the constructor; the network keeps each as an attribute.
    _ARGUMENTS: ClassVar[dict[str, Check]]

    def save(self, folder: str | Path) -> None:
        """Write the network to a folder: tensors as safetensors, constructor arguments as JSON.

        The write is atomic: a crash leaves the old network or the new one. Training state (the
        optimizer, frozen parameters) is not written; see `checkpoints` of
        :class:`jlgcn.training.RunOptions`.

        Args:
            folder: folder to write to; created if it does not exist.
        """
        # Here, since networks themselves need no safetensors.
        from jlgcn._saved import write_model

        arguments, tensors = arguments_of(self), self.state_dict()
        _check_tensors(tensors, tensors, "train it with a smaller learning rate")
        write_model(Path(folder), tensors, {"arguments": arguments}, self._schema())

    @classmethod
    def load(cls, folder: str | Path, *, device: torch.device | str = "cpu") -> Self:
        """Return the network that :meth:`save` wrote, in evaluation mode.

        Files cannot run code, and are validated before memory is allocated for a network.

        Args:
            folder: folder that :meth:`save` wrote.
            device (str or torch.device, default "cpu"): device of the network.

        Raises:
            FileNotFoundError: the folder holds no model.
            ValueError: the files are damaged, or of another class or version.
        """
        from jlgcn._saved import damaged, read_model

        path = Path(folder)
        tensors, document = read_model(path, cls._schema())
        try:
            # Copies: tensors of safetensors share the memory of the file's content.
            copies = {name: tensor.to(device, copy=True) for name, tensor in tensors.items()}
            return restored(cls, copies, document["arguments"])
        except ValueError as error:
            raise damaged(path, str(error)) from None

    @classmethod
    def _schema(cls) -> Schema:
        from jlgcn._saved import Schema

        return Schema(f"{cls.__name__} {_VERSION}", {"arguments": record(cls._ARGUMENTS)})


Network = TypeVar("Network", bound=SavedModule)


def arguments_of(network: SavedModule) -> dict[str, Any]:
    """Return the constructor arguments of a network as JSON."""
    return {name: _plain(getattr(network, name)) for name in network._ARGUMENTS}


def settings_of(network: nn.Module) -> dict[str, Any]:
    """Return the class of a network and its settings as JSON, such as dropout.

    The settings of a network of another library are the numbers, flags and strings among the
    attributes of its modules; `repr` leaves many out.
    """
    kind = type(network).__name__
    if isinstance(network, SavedModule):
        return {"class": kind, "arguments": arguments_of(network)}
    modules = {
        path: {"class": type(module).__name__} | _plain_attributes(module)
        for path, module in network.named_modules()
    }
    return {"class": kind, "modules": modules}


def _plain_attributes(module: nn.Module) -> dict[str, str]:
    return {
        name: repr(value)  # NaN would differ from itself
        for name, value in vars(module).items()
        if isinstance(value, (int, float, str)) and name != "training" and name[0] != "_"
    }


def restored(kind: type[Network], tensors: dict[str, Tensor], arguments: dict[str, Any]) -> Network:
    """Return a network of these parameters, in evaluation mode, on their device.

    Args:
        kind: class of the network.
        tensors: its state, validated before memory is allocated for a network.
        arguments: its constructor arguments, of checked types and ranges.
    """
    if "options" in arguments:
        arguments = arguments | {"options": JLGCNOptions(**arguments["options"])}
    with torch.device("meta"):
        model = kind(**arguments)
    _check_tensors(tensors, model.state_dict(), "save the network again")
    model.load_state_dict(tensors, assign=True)
    return model.eval()


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return an argument as JSON can store it."""
    if isinstance(value, JLGCNOptions):
        return {name: _plain(option) for name, option in asdict(value).items()}
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    return value.item() if hasattr(value, "item") else value  # a scalar of NumPy or PyTorch


def _check_tensors(tensors: dict[str, Tensor], wanted: dict[str, Tensor], remedy: str) -> None:
    """Raise unless tensors have the names, shapes and kinds of `wanted`, and are finite."""
    if tensors.keys() != wanted.keys():
        names = ", ".join(sorted(tensors.keys() ^ wanted.keys())[:5])
        raise ValueError(f"tensors are missing, or there are unknown ones: {names[:200]}")
    dtypes = {tensor.dtype for tensor in tensors.values() if tensor.dtype.is_floating_point}
    if len(dtypes) > 1 or not dtypes <= set(_DTYPES):
        found = ", ".join(sorted(map(str, dtypes)))
        raise ValueError(f"parameters must have one floating-point dtype, but they have {found}")
    for name, expected in wanted.items():
        tensor = tensors[name]
        if tensor.shape != expected.shape:
            raise ValueError(
                f"{name} has the shape {tuple(tensor.shape)}, but needs {tuple(expected.shape)}"
            )
        is_floating = expected.dtype.is_floating_point
        if tensor.dtype.is_floating_point != is_floating or not (
            is_floating or tensor.dtype == expected.dtype
        ):
            raise ValueError(f"{name} must be {expected.dtype}, but it is {tensor.dtype}")
        check_finite(tensor, name, remedy)
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise ValueError(f"{name} is negative")
        if name.endswith("learner.unit") and not float(tensor) > 0:
            raise ValueError(f"{name} must be above 0")
