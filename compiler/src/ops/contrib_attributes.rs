//! The attributes that operators of the domain `com.microsoft` are expanded with: any other is refused.

use super::Call;
use crate::te::{OpError, OpResult};

/// What says how fast or how exactly an operator may be computed is accepted: results here are exact.
const TABLE: &[(&str, &[&str])] = &[
    ("Attention", &["num_heads", "scale", "mask_filter_value", "qkv_hidden_sizes", "unidirectional"]),
    ("CDist", &["metric"]),
    ("CropAndResize", &["mode", "extrapolation_value"]),
    ("DequantizeLinear", &["axis", "block_size"]),
    (
        "DynamicQuantizeLSTM",
        &["activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget"],
    ),
    ("EmbedLayerNormalization", &["epsilon", "mask_index_type"]),
    (
        "FusedConv",
        &["activation", "activation_params", "auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"],
    ),
    (
        "FusedGemm",
        &["activation", "activation_alpha", "activation_beta", "activation_gamma", "alpha", "beta", "transA", "transB"],
    ),
    ("FusedMatMul", &["alpha", "transA", "transB", "transBatchA", "transBatchB"]),
    ("GatherBlockQuantized", &["bits", "block_size", "gather_axis", "quantize_axis"]),
    ("GridSample", &["align_corners", "mode", "padding_mode"]),
    ("GroupNorm", &["activation", "channels_last", "epsilon", "groups"]),
    (
        "GroupQueryAttention",
        &[
            "causal",
            "do_rotary",
            "kv_num_heads",
            "local_window_size",
            "num_heads",
            "rotary_interleaved",
            "scale",
            "smooth_softmax",
            "softcap",
        ],
    ),
    ("Irfft", &["normalized", "onesided", "signal_ndim"]),
    ("MatMulBnb4", &["K", "N", "block_size", "quant_type", "transB"]),
    ("MatMulNBits", &["K", "N", "accuracy_level", "bits", "block_size"]),
    (
        "MoE",
        &[
            "activation_alpha",
            "activation_beta",
            "activation_type",
            "k",
            "normalize_routing_weights",
            "swiglu_fusion",
            "swiglu_limit",
        ],
    ),
    ("MultiHeadAttention", &["mask_filter_value", "num_heads", "scale", "unidirectional"]),
    ("NhwcConv", &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"]),
    (
        "NhwcFusedConv",
        &["activation", "activation_params", "auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"],
    ),
    ("NhwcMaxPool", &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"]),
    ("Pad", &["mode"]),
    ("QAttention", &["mask_filter_value", "num_heads", "scale", "unidirectional"]),
    ("QEmbedLayerNormalization", &["epsilon"]),
    ("QGemm", &["alpha", "transA", "transB"]),
    (
        "QLinearAveragePool",
        &["auto_pad", "ceil_mode", "channels_last", "count_include_pad", "kernel_shape", "pads", "strides"],
    ),
    ("QLinearConcat", &["axis"]),
    ("QLinearConv", &["auto_pad", "channels_last", "dilations", "group", "kernel_shape", "pads", "strides"]),
    ("QLinearGlobalAveragePool", &["channels_last"]),
    ("QLinearLeakyRelu", &["alpha"]),
    ("QLinearReduceMean", &["axes", "keepdims"]),
    ("QLinearSoftmax", &["axis", "opset"]),
    (
        "QMoE",
        &[
            "accuracy_level",
            "activation_alpha",
            "activation_beta",
            "activation_type",
            "block_size",
            "expert_weight_bits",
            "fc1_expert_weight_bits",
            "fc2_expert_weight_bits",
            "fc3_expert_weight_bits",
            "k",
            "normalize_routing_weights",
            "quant_type",
            "swiglu_fusion",
            "swiglu_limit",
        ],
    ),
    ("QuantizeLinear", &["axis", "block_size"]),
    ("QuickGelu", &["alpha"]),
    ("ReduceSumInteger", &["axes", "keepdims"]),
    ("Rfft", &["normalized", "onesided", "signal_ndim"]),
    ("RotaryEmbedding", &["interleaved", "num_heads", "rotary_embedding_dim"]),
    ("SimplifiedLayerNormalization", &["axis", "epsilon", "stash_type"]),
    ("SkipGroupNorm", &["activation", "channels_last", "epsilon", "groups"]),
    ("SkipLayerNormalization", &["epsilon"]),
    ("SkipSimplifiedLayerNormalization", &["epsilon"]),
    ("TransposeMatMul", &["alpha", "transA", "transB"]),
    ("Trilu", &["upper"]),
    ("UnfoldTensor", &["dim", "size", "step"]),
];

/// Attributes that change nothing with these values (integers; for floats and strings see [`check`]).
const NEUTRAL: &[(&str, i64)] = &[
    ("do_rotary", 0),
    ("past_present_share_buffer", 0),
    ("rotary_embedding_dim", 0),
    ("weight_prepacked", 0),
    ("is_packed_batching", 0),
    ("training_mode", 0),
    ("qk_output", 0),
    ("sliding_window_cache", 0),
    ("swiglu_limit_after_activation", 0),
    ("use_sparse_mixer", 0),
    ("weights_prepacked", 0),
    ("kv_cache_bit_width", 0),
];

/// Refuses an attribute that the expansion does not know, unless its value is the one that means nothing.
pub(super) fn check(call: &Call) -> OpResult<()> {
    let known = TABLE.iter().find(|(op, _)| *op == call.op).map_or(&[][..], |(_, names)| *names);
    for (name, value) in &call.attrs {
        let name = name.as_str();
        let nothing = match value {
            super::AttrValue::Int(v) => NEUTRAL.contains(&(name, *v)),
            super::AttrValue::Float(v) => name == "scale" && *v == 1.0 && call.op == "RotaryEmbedding",
            super::AttrValue::Str(v) => matches!(name, "k_quant_type" | "v_quant_type") && v == "NONE",
            _ => false,
        };
        if !known.contains(&name) && !nothing {
            return Err(OpError::Unsupported(format!("attribute '{name}'")));
        }
    }
    Ok(())
}
