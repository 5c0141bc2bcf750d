"""Functions and methods that only compute: they draw nothing, write nothing, and change none of their arguments.

Whatever is not named here is taken to do more. Uninitialised memory (`torch.empty`) is left out on purpose.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ARITHMETIC = _words(
    """
    abs absolute acos acosh add addcdiv addcmul all allclose amax amin aminmax angle any argmax argmin argsort
    argwhere asin asinh atan atan2 atanh bincount bitwise_and bitwise_not bitwise_or bitwise_xor bmm broadcast_to
    bucketize cdist ceil chunk clamp clamp_max clamp_min clip clone conj copysign cos cosh count_nonzero cross
    cummax cummin cumprod cumsum deg2rad diag diag_embed diagflat diagonal diff dist div divide dot eq equal erf
    erfc exp exp2 expm1 flatten flip fliplr flipud float_power floor floor_divide fmax fmin fmod frac gather ge
    greater greater_equal gt heaviside histc hypot index_add index_copy index_fill index_put index_select inner
    inverse isclose isfinite isin isinf isnan isneginf isposinf kron kthvalue le lerp less less_equal log log10
    log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit logsumexp lt masked_fill
    masked_scatter masked_select matmul max maximum mean median min minimum mm mode moveaxis movedim mul multiply mv
    nan_to_num nanmean nanmedian nansum narrow ne neg negative nonzero norm not_equal numel outer permute pow prod
    quantile rad2deg ravel real reciprocal remainder renorm repeat_interleave reshape roll rot90 round rsqrt scatter
    scatter_add searchsorted select sgn sigmoid sign sin sinc sinh softmax sort split sqrt square squeeze std sub
    subtract sum swapaxes swapdims t take take_along_dim tan tanh tensordot tile topk trace transpose tril triu
    true_divide trunc unbind unflatten unique unique_consecutive unsqueeze var view_as_complex view_as_real where
    xlogy
    """
)

TORCH = _ARITHMETIC | _words(
    """
    arange as_tensor atleast_1d atleast_2d atleast_3d baddbmm block_diag broadcast_shapes broadcast_tensors
    cartesian_prod cat column_stack combinations complex concat concatenate device dsplit dstack einsum eye finfo
    from_numpy full full_like hamming_window hann_window hsplit hstack iinfo inference_mode is_floating_point
    is_tensor linspace logspace meshgrid no_grad numel ones ones_like polar Size stack tensor tril_indices
    triu_indices vander vsplit vstack zeros zeros_like
    """
)
_FUNCTIONAL = _words(
    """
    adaptive_avg_pool1d adaptive_avg_pool2d affine_grid avg_pool1d avg_pool2d avg_pool3d celu conv1d conv2d conv3d
    cosine_similarity elu fold gelu grid_sample hardtanh interpolate leaky_relu linear log_softmax logsigmoid
    max_pool1d max_pool2d max_pool3d mish normalize one_hot pad pairwise_distance pixel_shuffle pixel_unshuffle relu
    relu6 selu sigmoid silu softmax softplus softsign tanh threshold unfold
    """
)
_LINALG = _words("cross det inv norm vector_norm matrix_norm multi_dot solve")
NUMPY = _words(
    """
    abs absolute add all allclose amax amin any arange arccos arcsin arctan arctan2 argmax argmin argsort argwhere
    array array_equal asarray ascontiguousarray atleast_1d atleast_2d average bincount bool_ broadcast_to ceil clip
    column_stack concatenate copy cos cosh count_nonzero cross cumprod cumsum deg2rad diag diff digitize divide dot
    dtype einsum equal exp expand_dims eye fabs flip float32 float64 floor floor_divide fmod full full_like greater
    greater_equal hanning hstack hypot indices inner int32 int64 interp isclose isfinite isinf isnan less less_equal
    linspace log log10 log1p log2 logical_and logical_not logical_or logical_xor logspace matmul max maximum mean
    median meshgrid mgrid min minimum mod multiply negative nonzero not_equal ogrid ones ones_like outer pad
    percentile power prod quantile rad2deg radians ravel repeat reshape rint roll round searchsorted sign sin sinh
    sort sqrt square squeeze stack std subtract sum take tan tanh tile transpose tril triu trunc uint8 unique var
    vstack where zeros zeros_like
    """
)
_MATH = _words(
    """
    acos asin atan atan2 ceil comb copysign cos cosh degrees dist exp expm1 fabs factorial floor fmod fsum gcd hypot
    isclose isfinite isinf isnan isqrt lcm ldexp log log10 log1p log2 perm pow prod radians sin sinh sqrt tan tanh
    trunc
    """
)
# {module: its functions}
LIBRARY = {
    "torch": TORCH,
    "torch.nn.functional": _FUNCTIONAL,
    "torch.linalg": _LINALG,
    "numpy": NUMPY,
    "math": _MATH,
    "itertools": frozenset(("chain", "combinations", "permutations", "product")),
}
# What is multiplied, convolved or solved: a result hangs on how cudnn and matrix products round. All of two modules are
# taken to be such, though most of theirs are not.
PRODUCTS = _words("baddbmm bmm cdist dot einsum inner inverse kron matmul mm mv outer tensordot")
MODULES_OF_PRODUCTS = ("torch.nn.functional.", "torch.linalg.")
LIBRARIES = frozenset(name.partition(".")[0] for name in LIBRARY)
# More than two arguments by position are no result array with these.
NUMPY_OF_THREE = frozenset(("arange", "clip", "full", "linspace", "logspace", "where"))
BUILTINS = _words(
    """
    abs all any bool bytes complex dict divmod enumerate float frozenset int isinstance len list max min pow range
    reversed round slice sorted str sum tuple zip
    """
)
_OF_TENSORS = _words(
    """
    astype bool char contiguous copy cpu cuda dim double element_size expand expand_as flatten float half int
    is_complex is_contiguous is_floating_point item long mH new_full new_ones new_tensor new_zeros numpy relu repeat
    short size stride to tolist type_as unfold view view_as
    """
)
_OF_OTHERS = _words(
    "endswith format get index items join keys lower lstrip replace rstrip startswith strip upper values"
)
# A list or an array is sorted in place.
METHODS = (_ARITHMETIC | _OF_TENSORS | _OF_OTHERS) - {"sort"}
# These change what they are called on: allowed where that was made inside the function.
CHANGES_CONTAINER = frozenset(("add", "append", "extend", "insert", "pop", "setdefault", "sort", "update"))
CHANGES_TENSOR = frozenset(f"{name}_" for name in _ARITHMETIC) | frozenset(
    ("fill", "sort", "fill_", "zero_", "copy_", "fill_diagonal_", "unsqueeze_", "squeeze_", "relu_")
)
# Results that lie in memory of their own, whatever they were made of.
MAKES_TENSOR = _words(
    """
    arange cat concat concatenate eye full full_like hstack linspace logspace ones ones_like stack tensor vstack
    zeros zeros_like
    """
)
MAKES_TENSOR_AS_METHOD = frozenset(("clone", "new_full", "new_ones", "new_tensor", "new_zeros"))
MAKES_CONTAINER = frozenset(("dict", "list", "sorted", "tuple"))
MAKES_NUMBER = frozenset(("abs", "bool", "complex", "float", "int", "len", "pow", "round", "str"))
# What changes an argument, or what comes out differently each time.
KEYWORDS_REFUSED = frozenset(("generator", "inplace", "non_blocking", "out"))
# Of a tensor, but not of its content.
ATTRIBUTES_REFUSED = frozenset(("grad", "grad_fn", "is_leaf", "names", "output_nr", "retains_grad"))
DRAWS = ("rand", "normal", "bernoulli", "multinomial", "dropout", "uniform", "shuffle", "choice", "poisson", "sample")
