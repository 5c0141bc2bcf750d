"""Kinds of kernels by the names that libraries and torch give them, and a window in one record."""

from __future__ import annotations

import pytest

from flatout.diagnose.kernels import describe_window, kind_of, uses_tensor_cores


@pytest.mark.parametrize(
    ("name", "kind", "on_tensor_cores"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_ffma_execute_kernel__5x_cublas", "gemm", False),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_execute_kernel__5x_cublas", "gemm", True),
        ("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN", "gemm", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)", "gemm", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4>(Params)", "gemm", True),
        (
            "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_kernel__5x_cudnn",
            "convolution",
            True,
        ),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_kernel0_0", "attention", True),
        ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>(float)", "normalisation", False),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>()", "normalisation", False),
        ("void cudnn::engines_precompiled::nchwToNhwcKernel<float, float>()", "layout", False),
        ("Memcpy HtoD (Pageable -> Device)", "copy", False),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >()",
            "pointwise",
            False,
        ),
        ("triton_poi_fused_add_relu_3", "pointwise", False),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >()", "reduction", False),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>()", "reduction", False),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<>()", "optimizer", False),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", False),
        ("void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>()", "indexing", False),
        ("something_nobody_knows", "other", False),
    ],
)
def test_a_name_tells_the_kind(name: str, kind: str, on_tensor_cores: bool) -> None:
    assert kind_of(name) == kind
    assert uses_tensor_cores(name) == on_tensor_cores


@pytest.mark.parametrize(
    ("name", "is_in_float64"),
    [
        ("sm90_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize64x64x32_tensor16x8x16_execute_kernel__5x_cublas", True),
        ("void at::native::vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<double> >()", True),
        ("cutlass_80_simt_dgemm_64x64_8x3_nn_align1", True),
        ("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN", False),
        ("void doubled_rows_kernel<float>()", False),
    ],
)
def test_a_name_tells_float64(name: str, is_in_float64: bool) -> None:
    window = {"busy_ms": 1.0, "kernels": 1, "names": [name], "rows": [[0, ["forward", None], 1, 1.0]]}

    (share,) = describe_window(window).kinds

    assert share.float64_ms == (1.0 if is_in_float64 else 0.0)


def test_a_window_by_kind_and_line() -> None:
    forward, optimizer = ["forward", ["train.py", 3, "main"]], ["optimizer", None]
    window = {
        "busy_ms": 9.0,
        "kernels": 6,
        "names": ["nvjet_sm90", "void vectorized_elementwise_kernel"],
        "rows": [[0, forward, 2, 5.0], [1, optimizer, 3, 2.5], [1, forward, 1, 1.0]],
        "rest_ms": 0.5,
    }

    use = describe_window(window)

    assert (use.busy_ms, use.count) == (9.0, 6.0)
    assert {share.kind: share.ms for share in use.kinds} == {
        "gemm": 5.0,
        "optimizer": 2.5,
        "pointwise": 1.0,
        "other": 0.5,
    }
    assert use.kinds[0].tensor_core_ms == 5.0
    (line,) = use.lines
    assert (line.location.line, line.phase, line.count, line.ms) == (3, "forward", 3.0, 6.0)
    assert use.ms_of("gemm", "pointwise") == 6.0
