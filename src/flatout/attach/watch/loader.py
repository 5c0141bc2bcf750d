"""Watches DataLoaders in the training process: when a batch is asked for, when it arrives, what is in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .. import wire
from ..batch import count_again, tensor_bytes
from ..context import Context, Watcher
from ..imports import after_import
from ..patching import guard
from ..sites import user_frame
from ..tracer import ARRIVED, EXHAUSTED, ITERATOR_MADE, MOST_EVENTS, REQUEST, REQUEST_NO_GRAD, clock

_EPOCH = wire.packer("epoch").pack
_EPOCH_KIND = wire.KINDS["epoch"][0]
_MOST_PATHS = 8
_NO_KEY = object()  # no batch has an item of that name


class LoaderWatch(Watcher):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._grad = context.torch.is_grad_enabled
        self._loaders = 0
        self._torchs: Any = None
        self._weighed: set[int] = set()

    def install(self) -> None:
        after_import("torch.utils.data.dataloader", self._patch)

    def _patch(self, module: Any) -> None:
        patches = self._patches
        self._torchs = module._MultiProcessingDataLoaderIter
        # A default on the class: looking into an instance's __dict__ would slow all its attributes down for good.
        patches.put(module._BaseDataLoaderIter, "_flatout_loader", 0)
        patches.put(module._BaseDataLoaderIter, "_flatout_key", _NO_KEY)
        patches.put(module._BaseDataLoaderIter, "_flatout_path", ())
        patches.put(module._BaseDataLoaderIter, "_flatout_asked", 0)
        patches.replace(module.DataLoader, "__init__", self._make_init)
        patches.replace(module.DataLoader, "__iter__", self._make_iter)
        patches.replace(module._MultiProcessingDataLoaderIter, "__next__", lambda o: self._make_next(o, _queue_depth))
        patches.replace(module._BaseDataLoaderIter, "__next__", lambda o: self._make_next(o, None))

    def _make_init(self, original: Any) -> Any:
        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            try:
                frame = user_frame(sys._getframe(1))
                if frame is not None:
                    loader._flatout_made_at = (os.path.abspath(frame.f_code.co_filename), frame.f_lineno)
            except Exception as error:
                self._trouble(error)

        return __init__

    def _make_iter(self, original: Any) -> Any:
        tracer, device, grad, trouble = self._tracer, self._device, self._grad, self._trouble

        def __iter__(loader: Any) -> Any:
            begun, number = clock(), 0
            try:
                if tracer.owner == get_ident() or tracer.claim():
                    tracer.wake()
                    number = self._number(loader)
                    training = grad()
                    tracer.log(number << 5 | (REQUEST if training else REQUEST_NO_GRAD))
                    tracer.at(clock())
                    if device is not None and training:
                        device.request()
            except Exception as error:
                trouble(error)
            iterator = original(loader)
            try:
                if number:
                    tracer.log(ITERATOR_MADE)
                    tracer.at(clock())
                    if device is not None:
                        device.iterator_made()
                    iterator._flatout_loader = number << 5
                    iterator._flatout_asked = _batch_size_of(loader)
                    iterator._flatout_on_workers = self._note_worker_change
                    self._note_epoch(number, iterator, begun)
            except Exception as error:
                trouble(error)
            return iterator

        return __iter__

    def _make_next(self, original: Any, queue_depth: Callable[[Any], int] | None) -> Any:
        tracer, device, grad, trouble = self._tracer, self._device, self._grad, self._trouble
        log, at, codes, next_counted = tracer.log, tracer.at, tracer.codes, self._make_next_counted(original)

        def __next__(iterator: Any) -> Any:
            me = get_ident()
            training = grad()
            if tracer.looking != me:
                if tracer.owner == me and training:
                    return next_counted(iterator)
                if tracer.owner != me and not tracer.claim():
                    return original(iterator)
                tracer.wake()
            what = ARRIVED
            try:
                what_for = iterator._flatout_loader
                log(what_for if training else what_for | REQUEST_NO_GRAD)  # REQUEST is 0
                at(clock())
                if queue_depth is not None:
                    what |= queue_depth(iterator) + 1 << 5
                if device is not None:
                    device.request() if training else device.drop()
            except Exception as error:
                trouble(error)
            try:
                batch = original(iterator)
            except BaseException:
                guard(self._note_no_batch, trouble)
                raise
            now = clock()
            try:
                # Nearly all batches are a sequence or mapping with a tensor right in it, at a place known by now.
                samples = batch[iterator._flatout_key].shape[0]
            except Exception:
                samples = self._count_samples(iterator, batch)
            log(samples << 21 | what)
            at(now)
            if device is not None and training:
                guard(device.arrived, trouble)
            if tracer.want_look or len(codes) > MOST_EVENTS:
                self._do_rare_work(iterator, batch, training)
            return batch

        return __next__

    def _make_next_counted(self, original: Any) -> Any:
        """For steps that are only counted."""
        tracer, device, trouble = self._tracer, self._device, self._trouble

        def next_counted(iterator: Any) -> Any:
            if device is not None and device.sample is not None:
                guard(device.finish, trouble)
            try:
                return original(iterator)
            except BaseException:
                tracer.wake()
                raise

        return next_counted

    def _note_no_batch(self) -> None:
        self._tracer.log(EXHAUSTED)
        self._tracer.at(clock())
        if self._device is not None:
            self._device.drop()

    def _do_rare_work(self, iterator: Any, batch: Any, training: bool) -> None:
        try:
            if training:
                self._look_for_padding(iterator._flatout_loader >> 5, batch)
            if training and self._tracer.window is not None:
                self._tracer.window.arrived()
            self._tracer.relieve()
        except Exception as error:
            self._trouble(error)

    def _look_for_padding(self, loader: int, batch: Any) -> None:
        padding = self._context.graph.padding
        if self._tracer.want_graph:
            padding.look(loader, batch)
        elif padding.is_due():
            padding.look_again(loader, batch)

    def _count_samples(self, iterator: Any, batch: Any) -> int:
        """The number of samples in a batch; where it was found is remembered with the iterator."""
        try:
            path, size = count_again(iterator._flatout_path, batch, iterator._flatout_asked)
            if path is not iterator._flatout_path or not path:
                iterator._flatout_path = path
                iterator._flatout_key = path[0][1] if len(path) == 1 and path[0][0] == "item" else _NO_KEY
                self._weigh(iterator, batch)
            return size
        except Exception as error:
            self._trouble(error)
            return 0

    def _weigh(self, iterator: Any, batch: Any) -> None:
        """What torch's own workers hand over in memory of its own, by the first batch of each loader."""
        number = iterator._flatout_loader >> 5
        if type(iterator) is self._torchs and number not in self._weighed:
            self._weighed.add(number)
            try:
                size = tensor_bytes(batch)
            except Exception:
                return  # a batch whose attributes raise when looked at
            self._output().text("batch", {"loader": number, "bytes": size})

    def _number(self, loader: Any) -> int:
        """This loader's number; its current settings go into the recording when it is first used."""
        number: int | None = loader.__dict__.get("_flatout_number")
        if number is None:
            self._loaders += 1
            number = loader._flatout_number = self._loaders
            self._output().text("loader", {"id": number, **_settings(loader)})
        return number

    def _note_worker_change(self, loader: Any, workers: list[Any], begun: float) -> None:
        """An iterator of flatout's own has other workers than at the epoch's beginning."""
        try:
            number = self._number(loader)
            self._output().text("loader", {"id": number, **_settings(loader)})
            self._note_workers(number, workers, begun)
        except Exception as error:
            self._trouble(error)

    def _note_epoch(self, number: int, iterator: Any, begun: float) -> None:
        workers = getattr(iterator, "_workers", [])
        self._output().append(_EPOCH(_EPOCH_KIND, 0, 0, number, len(workers), int(begun * 1e9), int(clock() * 1e9)))
        if workers:
            self._note_workers(number, workers, begun)

    def _note_workers(self, number: int, workers: list[Any], begun: float) -> None:
        told = {"loader": number, "pids": [worker.pid for worker in workers], "start_ns": int(begun * 1e9)}
        self._output().text("workers", told)


def _batch_size_of(loader: Any) -> int:
    """Samples the loader takes for a batch, 0 where its sampler does not say."""
    size = loader.batch_size or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else 0


def _queue_depth(iterator: Any) -> int:
    try:
        ready = iterator._data_queue.qsize()
        if iterator._pin_memory:
            ready += iterator._worker_result_queue.qsize()
        return min(int(ready), 0x7FFF)
    except (NotImplementedError, AttributeError):
        return -1


def _settings(loader: Any) -> dict[str, object]:
    dataset = loader.dataset
    context = getattr(loader, "multiprocessing_context", None)
    made_at = loader.__dict__.get("_flatout_made_at", (None, None))
    return {
        "file": made_at[0],
        "line": made_at[1],
        "class": type(loader).__qualname__,
        "num_workers": loader.num_workers,
        "batch_size": loader.batch_size,
        "batch_sampler_size": getattr(getattr(loader, "batch_sampler", None), "batch_size", None),
        "pin_memory": bool(loader.pin_memory),
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "drop_last": loader.drop_last,
        "timeout": loader.timeout,
        "sampler": type(getattr(loader, "sampler", None)).__name__,
        "dataset": f"{type(dataset).__module__}.{type(dataset).__qualname__}",
        "dataset_len": _length(dataset),
        "collate_fn": getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__qualname__),
        "multiprocessing_context": context.get_start_method() if context is not None else None,
        "paths": _paths_in(dataset),
    }


def _length(dataset: Any) -> int | None:
    # A length that has to be computed is the user's code; only look where it is a stored one.
    try:
        return len(dataset) if hasattr(type(dataset), "__getitem__") else None
    except Exception:
        return None


def _paths_in(dataset: Any) -> list[str]:
    """Folders and files the dataset names in its attributes, to learn which file system the data is on."""
    values = list(getattr(dataset, "__dict__", {}).values())[:64]
    texts = [os.fspath(v) for v in values if isinstance(v, str | os.PathLike)]
    short = [t for t in texts if isinstance(t, str) and len(t) < 4096]
    return [os.path.abspath(t) for t in short if os.path.exists(t)][:_MOST_PATHS]
