# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Sharded embedding tables in Python and PyTorch, over libtessera_c by ctypes and DLPack: no binding library, no compiler.

    import torch, tessera
    tables = tessera.EmbeddingBagCollection(
        [tessera.Table("user", 1000, 16), tessera.Table("film", 200, 16)], optimizer="rowwise-adagrad", learning_rate=0.1)
    pooled = tables(ids, lengths)          # [samples, 32]; or tables(kjt) of TorchRec
    loss(pooled).backward()                # updates the rows: there is no optimizer step for them

Ranks, Communicator.torch(), .gloo() or .threads(n), make the same calls in the same order. docs/bridges.md tells more.
"""
import ctypes.util
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p
from dataclasses import dataclass

try:
    import torch
except ImportError:  # collections of NumPy's arrays work without
    torch = None

Error = type("Error", (RuntimeError,), {"__doc__": "What the library says of a call that failed."})
InvalidArgument, BadId, DataError, CommunicatorError = (type(name, (Error, base), {}) for name, base in (
    ("InvalidArgument", ValueError), ("BadId", IndexError), ("DataError", OSError), ("CommunicatorError", ConnectionError)))
_ERRORS = dict(enumerate((InvalidArgument, BadId, DataError, CommunicatorError), 1))
POOLINGS = ("sum", "mean", "sqrtn", "max")


def _structure(fields):
    """A C structure of "name: type, ..."."""
    return type("Structure", (ctypes.Structure,), {"_fields_": [(name, globals()[f"c_{kind}"]) for name, kind in
                                                                (field.split(": ") for field in fields.split(", "))]})


_Table = _structure("name: char_p, rows: int64, width: int32, policy: char_p")
_Feature = _structure("name: char_p, table: char_p, pooling: int, weighted: int")
_Options = _structure("struct_size: size_t, optimizer: char_p, precision: char_p, codec: char_p, gradient_codec: char_p, learning_rate: float, "
                      "initial_bound: float, seed: uint64, threads: int, deduplicate: int, bad_ids: int, gradient_blocks: int, device: int, stream: void_p")
_Batch = _structure("features: int64, samples: int64, ids: void_p, id_count: size_t, id_bits: int, offsets: void_p, weights: void_p")
_Gradients = _structure("pooled: void_p, stride: int64, sequences: void_p, sequence_count: size_t, weight_gradients: void_p")
c_post, c_wait = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_void_p, c_size_t), ctypes.CFUNCTYPE(c_int, c_void_p)
_Messages = _structure("struct_size: size_t, context: void_p, rank: int, size: int, send: post, receive: post, wait: wait, fail: void_p")
c_extents = POINTER(c_int64)
_Tensor = _structure("data: void_p, device_type: int32, device_id: int32, dimensions: int32, code: uint8, bits: uint8, lanes: uint16, "
                     "shape: extents, strides: extents, byte_offset: uint64")  # DLPack's DLTensor


def _library():
    beside = pathlib.Path(__file__).resolve().parent / "libtessera_c.so"
    name = os.environ.get("TESSERA_LIBRARY") or (str(beside) if beside.exists() else ctypes.util.find_library("tessera_c"))
    if not name:
        raise ImportError("there is no libtessera_c.so here: install the wheel, or build CMake's target tessera_c and set TESSERA_LIBRARY to it")
    library = ctypes.CDLL(name)
    library.tessera_last_error.restype = library.tessera_version.restype = c_char_p
    for call in ("communicator_threads: int double void_p, communicator_gloo: double void_p, all_reduce: void_p void_p size_t, "  # not all int
                 "set_learning_rate: void_p char_p float, apply: void_p float void_p size_t void_p, lookup: void_p void_p int64, "
                 "evaluate: void_p void_p void_p int64, save: void_p void_p char_p int64, gather_table: void_p char_p int void_p int64, "
                 "write_table: void_p char_p int void_p int64").split(", "):
        name, types = call.split(": ")
        getattr(library, f"tessera_{name}").argtypes = [globals()[f"c_{kind}"] for kind in types.split()]
    return library


_c = _library()
__version__ = _c.tessera_version().decode()


def _check(status, made=None):
    if status:
        raise _ERRORS.get(status, Error)(os.fsdecode(_c.tessera_last_error()))
    return made


def _made(call, *arguments):  # returns the pointer to it
    return _check(getattr(_c, f"tessera_{call}")(*arguments, byref(pointer := c_void_p())), pointer)


class _Handle:
    """A pointer of the library's, destroyed with this object."""
    def __init__(self, kind, pointer):
        self._as_parameter_, self._destroy = pointer, getattr(_c, f"tessera_{kind}_destroy")

    def __del__(self):
        if hasattr(self, "_destroy"):
            self._destroy(self._as_parameter_)


_nothing = ctypes.c_float()
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
_TYPES = {(0, 32): "int32", (0, 64): "int64", (2, 32): "float32"}
_TORCH_TYPES, _HOST = torch and ({torch.int32: ("int32", 32), torch.int64: ("int64", 64), torch.float32: ("float32", 32)}, torch.device("cpu")) or (None, None)


def _place_of(device):
    """Returns the number of a GPU ("cuda:1" or 1; "cuda": the current one) and its current stream, -1 and 0 for the host ("cpu" or None)."""
    kind, _, number = f"cuda:{device}".partition(":") if isinstance(device, int) else str(device or "cpu").partition(":")
    if kind not in ("cpu", "cuda"):
        raise InvalidArgument(f"device '{device}': tables are in host memory ('cpu') or on a GPU ('cuda:0')")
    gpu = -1 if kind == "cpu" else int(number or torch.cuda.current_device())
    return gpu, torch.cuda.current_stream(gpu).cuda_stream if torch and gpu >= 0 else 0


class _Array:
    """The memory of an array: its address, shape and type. Throws InvalidArgument for what the library cannot read in place."""
    __slots__ = "bits", "keep", "pointer", "shape", "stride"

    def __init__(self, array, what, types, dimensions=1, gpu=-1, stream=0):
        here = torch and type(array) is torch.Tensor and (array.device == _HOST if gpu < 0 else array.is_cuda and array.get_device() == gpu)
        if here and array.layout is torch.strided and array.is_contiguous():
            kind, self.bits = _TORCH_TYPES.get(array.dtype, (None, 0))  # a usual tensor says it all, sooner than a capsule
            if kind in types and array.dim() == dimensions:
                self.keep, self.pointer, self.shape, self.stride = array, array.data_ptr(), array.shape, array.shape[-1]
                return
        if not hasattr(array, "__dlpack__"):
            raise InvalidArgument(f"{what} is a {type(array).__name__}; give a tensor or an array (of PyTorch, NumPy, ...)")
        array = array.detach() if getattr(array, "requires_grad", False) else array
        try:  # host memory may be page-locked, a GPU's managed
            place, number = array.__dlpack_device__()
            here = place in ((1, 3) if gpu < 0 else (2, 13)) and gpu in (-1, number)
            self.keep = array.__dlpack__(stream=stream or 1 if gpu >= 0 else None) if here else None  # it keeps the array
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgument(f"{what} cannot be shared: {error}") from error
        if not here:
            raise InvalidArgument(f"{what} is on another device; these tables are " + (
                f"on GPU {gpu}: give {what}.to('cuda:{gpu}')" if gpu >= 0 else f"in host memory: give {what}.cpu()"))
        tensor = _Tensor.from_address(_capsule_pointer(self.keep, b"dltensor"))
        self.shape = tuple(tensor.shape[:tensor.dimensions])
        kind = _TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        if kind not in types:
            raise InvalidArgument(f"{what} has another type of elements; give {' or '.join(types)}")
        if tensor.dimensions != dimensions:
            raise InvalidArgument(f"{what} has {tensor.dimensions} dimensions, must have {dimensions}")
        strides = tensor.strides[:dimensions] if tensor.strides else [self.shape[-1], 1][-dimensions:]
        self.stride = strides[0] if dimensions == 2 and self.shape[0] > 1 else self.shape[-1]
        if (strides[-1] != 1 and self.shape[-1] > 1) or self.stride < self.shape[-1]:
            raise InvalidArgument(f"{what} has strides {strides}; elements of a row must be neighbours: give {what}.contiguous()")
        self.bits, self.pointer = tensor.bits, (tensor.data or 0) + tensor.byte_offset


def _empty(rows, columns, gpu=-1):
    """Returns a matrix to be filled, and its memory."""
    if torch is None:
        return (matrix := __import__("numpy").empty((rows, columns), "float32")), matrix.ctypes.data
    return (matrix := torch.empty((rows, columns), dtype=torch.float32, device=f"cuda:{gpu}" if gpu >= 0 else None)), matrix.data_ptr()


class Communicator(_Handle):
    """A rank of a job; Communicator() is the only one of its job."""
    def __init__(self, pointer=None):
        super().__init__("communicator", pointer or _made("communicator_self"))
        _check(_c.tessera_communicator_rank(self, byref(rank := c_int()), byref(size := c_int())))
        self.rank, self.size, self._fault = rank.value, size.value, None

    @classmethod
    def threads(cls, ranks, timeout=0.0):
        """Returns a communicator for each of `ranks` threads of this process."""
        _check(_c.tessera_communicator_threads(ranks, timeout, pointers := (c_void_p * max(ranks, 1))()))
        return [cls(c_void_p(pointer)) for pointer in pointers]

    @classmethod
    def gloo(cls, timeout=600.0):
        """Returns this process's, over Gloo, by the variables of torchrun, srun or mpirun: for jobs without torch.distributed."""
        return cls(_made("communicator_gloo", timeout))

    @classmethod
    def torch(cls, group=None):
        """Returns this process's, whose messages torch.distributed carries: of a group whose backend sends the host's memory (gloo)."""
        work = torch.distributed
        if not work.is_initialized():
            raise InvalidArgument("torch.distributed is not initialized: call init_process_group('gloo') first, or take Communicator.gloo()")
        peers, begun, made = group and [work.get_global_rank(group, r) for r in range(work.get_world_size(group))], [], []

        def guarded(call, kind):
            def run(*arguments):
                try:
                    call(*arguments)
                except BaseException as error:  # of a signal, too: it goes on where the library returns
                    made[0]._fault = error
                return made[0]._fault is not None
            return kind(run)

        def post(begin, peer, tag, memory, count):
            bytes_ = torch.frombuffer((ctypes.c_char * count).from_address(memory), dtype=torch.uint8)
            begun.append((begin(bytes_, peers[peer] if peers else peer, group, tag), bytes_))

        messages = _Messages(ctypes.sizeof(_Messages), None, work.get_rank(group), work.get_world_size(group),
                             guarded(lambda _, *message: post(work.isend, *message), c_post),
                             guarded(lambda _, *message: post(work.irecv, *message), c_post),
                             guarded(lambda _: [begun.pop(0)[0].wait() for _ in range(len(begun))], c_wait), None)
        made.append(cls(_made("communicator_messages", byref(messages))))
        made[0]._messages = messages  # and the functions in it
        return made[0]

    def check(self, status):
        fault, self._fault = self._fault, None
        if status and fault is not None:
            raise fault
        _check(status)

    def all_reduce(self, values):
        """Replaces a float array by its sum over the ranks."""
        self.check(_c.tessera_all_reduce(self, (array := _Array(values, "values", ("float32",))).pointer, array.shape[0]))

    def barrier(self):
        self.check(_c.tessera_barrier(self))


@dataclass
class Table:
    """A table and the features that read it (none: one of its name). `policy` as in tessera.h: "row-wise", "column-wise:2", ..."""
    name: str
    rows: int
    width: int
    pooling: str = "sum"
    features: tuple = ()
    policy: str = None


class Collection:
    """Tables over ranks, for arrays of any library that has DLPack: in host memory, or on the GPU `device` ("cuda:0"), in the order of the
    stream that is current now. `options`: those of tessera_collection_options."""
    def __init__(self, tables, communicator=None, plan="auto", weighted=False, device=None, **options):
        self.tables, self.communicator = list(tables), communicator or Communicator()
        if wrong := [table for table in self.tables if table.pooling not in POOLINGS]:
            raise InvalidArgument(f"table '{wrong[0].name}': there is no pooling '{wrong[0].pooling}'; give one of {', '.join(POOLINGS)}")
        pairs = [(name, table) for table in self.tables for name in (table.features or (table.name,))]
        self.features, self.widths = [name for name, _ in pairs], [table.width for _, table in pairs]
        specs = (_Table * len(self.tables))(*((t.name.encode(), t.rows, t.width, t.policy and t.policy.encode()) for t in self.tables))
        columns = (_Feature * len(pairs))(*((name.encode(), t.name.encode(), POOLINGS.index(t.pooling), weighted) for name, t in pairs))
        arguments = specs, c_size_t(len(specs)), columns, c_size_t(len(columns)), self.communicator.size, 0
        layout = _Handle("layout", _made("layout_from_file", os.fsencode(plan), *arguments) if os.path.isfile(plan) else
                         _made("layout_create", *arguments, plan.encode()))
        self.plan = _check(_c.tessera_layout_text(layout, byref(text := c_char_p())), text).value.decode()  # as a plan file
        _check(_c.tessera_collection_defaults(byref(values := _Options())))
        values.device, values.stream = self._at = _place_of(device)
        for name, value in options.items():
            if name not in dict(_Options._fields_):
                raise InvalidArgument(f"there is no option '{name}'; there are {', '.join(name for name, _ in _Options._fields_[1:])}")
            setattr(values, name, value.encode() if isinstance(value, str) else value)
        self._handle = _Handle("collection", _made("collection_create", self.communicator, layout, byref(values)))
        self.weighted, self.columns, self._rows = weighted, sum(self.widths), {table.name: table.rows for table in self.tables}

    def step(self):
        """Returns a batch in flight, for lookup and update."""
        return _Handle("step", _made("step_create", self._handle))

    @property
    def _place(self):  # of arrays: the GPU, and the stream that has written them
        if self._at[0] >= 0 and _place_of(self._at[0]) != self._at:
            raise InvalidArgument("another stream is current than when the collection was made: call it under that one (torch.cuda.stream)")
        return self._at

    def _batch(self, ids, offsets, weights):
        ids = _Array(ids, "ids", ("int32", "int64"), 1, *self._place)
        offsets = offsets if offsets is None else _Array(offsets, "offsets", ("int64",), 1, *self._place)
        weights = weights if weights is None else _Array(weights, "weights", ("float32",), 1, *self._place)
        if weights is not None and (weights.shape != ids.shape or not self.weighted):
            raise InvalidArgument(f"there are {weights.shape[0]} weights for {ids.shape[0]} ids; features that read them are weighted=True")
        bags, features = (ids.shape[0] if offsets is None else offsets.shape[0] - 1), len(self.features)
        if bags < 0 or bags % features:
            raise InvalidArgument(f"{bags} bags are not a whole number of samples of {features} features; offsets are bags + 1, from 0")
        batch = _Batch(features, bags // features, ids.pointer, ids.shape[0], ids.bits, offsets and offsets.pointer, weights and weights.pointer)
        batch.arrays = ids, offsets, weights
        return batch, *_empty(batch.samples, self.columns, self._at[0])

    def lookup(self, step, ids, offsets=None, weights=None):
        """Looks up this rank's samples for `update`: bags feature by feature; without offsets one id each. Returns [samples, columns]."""
        step.batch, output, memory = self._batch(ids, offsets, weights)  # the batch's arrays stay in use until the update
        self.communicator.check(_c.tessera_route(step, byref(step.batch)))
        self.communicator.check(_c.tessera_lookup(step, memory, self.columns))
        return output

    def evaluate(self, step, ids, offsets=None, weights=None):
        """Does the same without an update after it."""
        batch, output, memory = self._batch(ids, offsets, weights)
        self.communicator.check(_c.tessera_evaluate(step, byref(batch), memory, self.columns))
        return output

    def update(self, step, gradient, weight_gradients=None, accumulate=False):
        """Updates the rows of a step by the gradient of what `lookup` returned; accumulate: sets it aside for `apply`."""
        gradient = _Array(gradient, "gradient", ("float32",), 2, *self._place)
        if gradient.shape != (shape := (step.batch.samples, self.columns)):
            raise InvalidArgument(f"the gradient is {list(gradient.shape)}, must be {list(shape)}")
        out = weight_gradients is not None and _Array(weight_gradients, "weight_gradients", ("float32",), 1, *self._place)
        if out and out.shape[0] != step.batch.id_count:
            raise InvalidArgument(f"room for {out.shape[0]} gradients of weights, but there are {step.batch.id_count} ids")
        pointer = out and (out.pointer or ctypes.addressof(_nothing))  # not NULL on a rank without ids
        given = _Gradients(gradient.pointer, gradient.stride, None, 0, pointer or None)
        self.communicator.check((_c.tessera_accumulate if accumulate else _c.tessera_update)(step, byref(given)))

    def apply(self, most_norm=0.0):
        """Makes a step of what was accumulated, clipped to this norm (0: not at all). Returns the norm before."""
        self.communicator.check(_c.tessera_apply(self._handle, most_norm, None, 0, byref(norm := c_double())))
        return norm.value

    def set_learning_rate(self, rate, table=None):
        _check(_c.tessera_set_learning_rate(self._handle, table and table.encode(), rate))

    def states(self, table):
        """Returns the columns of a table's weights (-1) and of each state of its optimizer (from 0)."""
        count, columns, found = c_int(0), c_int64(), {}
        while (state := len(found) - 1) < count.value:
            _check(_c.tessera_table_states(self._handle, table.encode(), state, byref(count), byref(columns)))
            found[state] = columns.value
        return found

    def read(self, table, state=-1):
        """Returns a whole table [rows, width], or a state of its optimizer, in host memory on every rank. Collective."""
        values, memory = _empty(self._rows[table], columns := self.states(table)[state])
        self.communicator.check(_c.tessera_gather_table(self._handle, table.encode(), state, memory, columns))
        return values

    def write(self, table, values, state=-1):
        """Takes this rank's part of a whole table in host memory."""
        array, width = _Array(values, table, ("float32",), 2), self.states(table)[state]
        if array.shape != (self._rows[table], width):
            raise InvalidArgument(f"table '{table}' is {[self._rows[table], width]}, what is given {list(array.shape)}")
        _check(_c.tessera_write_table(self._handle, table.encode(), state, array.pointer, array.stride))

    def save(self, directory, step):
        """Saves to DIRECTORY/step-N, N in 12 digits, which any plan and number of ranks reads."""
        self.communicator.check(_c.tessera_save(self._handle, None, os.fsencode(directory), step))

    def load(self, folder):
        self.communicator.check(_c.tessera_load(self._handle, None, os.fsencode(folder)))


if torch is not None:
    class _Lookup(torch.autograd.Function):  # looks up; in the backward pass updates rows, and gives the gradient of per-id weights
        @staticmethod
        def forward(ctx, _, module, ids, offsets, weights):
            ctx.module, ctx.weighted = module, weights is not None and weights.requires_grad
            ctx.step = module._free.pop() if module._free else module.collection.step()
            return module.collection.lookup(ctx.step, ids, offsets, weights)

        @staticmethod
        def backward(ctx, gradient):
            module, step = ctx.module, ctx.step
            if step is None:
                raise InvalidArgument("a second backward pass of one lookup: its rows are updated; set `accumulate` to add up several losses")
            weights = torch.zeros(step.batch.id_count, device=gradient.device) if ctx.weighted else None
            module.collection.update(step, gradient.contiguous(), weights, module.accumulate)
            if not module.accumulate:
                ctx.step = module._free.append(step)
            return None, None, None, None, weights

    class EmbeddingBagCollection(torch.nn.Module):
        """Pooled vectors of several features, [samples, columns]; the rows learn in the backward pass, by the tables' own optimizer.

        The keywords are those of Collection. With `accumulate` set, backward passes add up until `collection.apply()`."""
        def __init__(self, tables, **keywords):
            super().__init__()
            self.collection, self.accumulate, self._free = Collection(tables, **keywords), False, []
            self._evaluation, self._asked = self.collection.step(), torch.zeros((), requires_grad=True)  # so that autograd calls _Lookup.backward

        def forward(self, ids, lengths=None, weights=None, offsets=None):
            """Takes ids and lengths (or offsets) feature by feature, or one KeyedJaggedTensor of TorchRec."""
            if hasattr(ids, "weights_or_none"):
                if list(ids.keys()) != self.collection.features:
                    raise InvalidArgument(f"the batch has features {list(ids.keys())}, must have {self.collection.features}, in this order")
                ids, lengths, weights = ids.values(), ids.lengths(), ids.weights_or_none()
            if lengths is not None:
                offsets = torch.cat([lengths.new_zeros(1, dtype=torch.int64), lengths.reshape(-1).cumsum(0)])
            if torch.is_grad_enabled() and self.training:
                return _Lookup.apply(self._asked, self, ids, offsets, weights)
            return self.collection.evaluate(self._evaluation, ids, offsets, weights)

        def split(self, pooled):
            """Returns the columns of each feature by its name."""
            return dict(zip(self.collection.features, pooled.split(self.collection.widths, 1)))

        def _keys(self, prefix):  # NAME.weight, NAME.state.0, ...
            return {f"{prefix}{table.name}.{'weight' if state < 0 else f'state.{state}'}": (table.name, state)
                    for table in self.collection.tables for state in self.collection.states(table.name)}

        def _save_to_state_dict(self, destination, prefix, keep_vars):  # whole tables, on every rank
            destination.update((key, self.collection.read(*of)) for key, of in self._keys(prefix).items())

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
            known = self._keys(prefix)
            missing += [key for key in known if key not in state_dict]
            unexpected += [key for key in state_dict if key.startswith(prefix) and key not in known]
            for key in known.keys() & state_dict.keys():
                try:
                    self.collection.write(known[key][0], state_dict[key].float().cpu().contiguous(), known[key][1])
                except InvalidArgument as error:
                    errors.append(str(error))

    class EmbeddingBag(EmbeddingBagCollection):
        """One table in the place of torch.nn.EmbeddingBag(rows, width, mode=...): the same arguments of forward."""
        def __init__(self, rows, width, mode="sum", **keywords):
            super().__init__([Table("weight", rows, width, mode)], **keywords)

        def forward(self, input, offsets=None, per_sample_weights=None):
            if input.dim() == 2:
                offsets = torch.arange(0, input.numel() + 1, max(input.shape[1], 1), device=input.device)
            elif offsets is not None:  # torch's have no last one
                offsets = torch.cat([offsets.long(), offsets.new_tensor([input.numel()], dtype=torch.int64)])
            return super().forward(input.reshape(-1), None, per_sample_weights if per_sample_weights is None else per_sample_weights.reshape(-1), offsets)
