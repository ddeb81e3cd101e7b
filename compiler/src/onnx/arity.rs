//! How many inputs and outputs each standard operator takes, after the schemas of ONNX 1.23.
//!
//! Checked once for all operators, so that no later stage meets an operator without its required inputs. A row holds
//! from its version on, until the operator's next row.

/// No limit: the last parameter may be repeated.
const ANY: u8 = u8::MAX;

struct Row {
    domain: &'static str,
    op: &'static str,
    since: u8,
    inputs: (u8, u8),
    /// Bit n: input n may not be left out by an empty name.
    required: u32,
    outputs: (u8, u8),
}

#[allow(clippy::too_many_arguments, reason = "the rows of a table")]
const fn row(
    domain: &'static str,
    op: &'static str,
    since: u8,
    least_in: u8,
    most_in: u8,
    required: u32,
    least_out: u8,
    most_out: u8,
) -> Row {
    Row { domain, op, since, inputs: (least_in, most_in), required, outputs: (least_out, most_out) }
}

/// What is wrong with the numbers of inputs and outputs of an operator, if anything. Operators and versions that the
/// table does not know are not judged. `inputs` tells for each input whether it is given.
pub(super) fn complaint(domain: &str, op: &str, version: i64, inputs: &[bool], outputs: usize) -> Option<String> {
    let start = TABLE.partition_point(|row| (row.domain, row.op) < (domain, op));
    let rows = TABLE[start..].iter().take_while(|row| (row.domain, row.op) == (domain, op));
    let row = rows.filter(|row| i64::from(row.since) <= version).last()?;
    let given = inputs.len();
    // Trailing empty names are as good as absent.
    let last = inputs.iter().rposition(|given| *given).map_or(0, |place| place + 1);
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    if given < row.inputs.0.into() {
        let least = plural(row.inputs.0.into(), "input");
        return Some(format!("{op} needs at least {least}, but has {given}"));
    }
    if row.inputs.1 != ANY && last > row.inputs.1.into() {
        let most = plural(row.inputs.1.into(), "input");
        return Some(format!("{op} takes at most {most}, but has {last}"));
    }
    for (place, given) in inputs.iter().enumerate().take(32) {
        if !given && row.required >> place & 1 == 1 {
            return Some(format!("input {place} of {op} cannot be left out"));
        }
    }
    if outputs < row.outputs.0.into() {
        let least = plural(row.outputs.0.into(), "output");
        return Some(format!("{op} has at least {least}, but {outputs} are named"));
    }
    if row.outputs.1 != ANY && outputs > row.outputs.1.into() {
        let most = plural(row.outputs.1.into(), "output");
        return Some(format!("{op} has at most {most}, but {outputs} are named"));
    }
    None
}

#[rustfmt::skip]
static TABLE: &[Row] = &[
    row("ai.onnx", "Abs", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Acos", 7, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Acosh", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Add", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "AffineGrid", 20, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "And", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "ArgMax", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ArgMin", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Asin", 7, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Asinh", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Atan", 7, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Atanh", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Attention", 23, 3, 6, 0b111, 1, 4),
    row("ai.onnx", "Attention", 24, 3, 7, 0b111, 1, 4),
    row("ai.onnx", "AveragePool", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "BatchNormalization", 1, 5, 5, 0b11111, 1, 5),
    row("ai.onnx", "BatchNormalization", 14, 5, 5, 0b11111, 1, 3),
    row("ai.onnx", "Bernoulli", 15, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "BitCast", 26, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "BitShift", 11, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "BitwiseAnd", 18, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "BitwiseNot", 18, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "BitwiseOr", 18, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "BitwiseXor", 18, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "BlackmanWindow", 17, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Cast", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "CastLike", 15, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "CausalConvWithState", 27, 2, 4, 0b11, 2, 2),
    row("ai.onnx", "Ceil", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Celu", 12, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "CenterCropPad", 18, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Clip", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Clip", 11, 1, 3, 0b1, 1, 1),
    row("ai.onnx", "Col2Im", 18, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "Compress", 9, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Concat", 1, 1, ANY, 0b0, 1, 1),
    row("ai.onnx", "ConcatFromSequence", 11, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Constant", 1, 0, 0, 0b0, 1, 1),
    row("ai.onnx", "ConstantOfShape", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Conv", 1, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "ConvInteger", 10, 2, 4, 0b11, 1, 1),
    row("ai.onnx", "ConvTranspose", 1, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "Cos", 7, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Cosh", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "CumProd", 26, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "CumSum", 11, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "DFT", 17, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "DFT", 20, 1, 3, 0b1, 1, 1),
    row("ai.onnx", "DeformConv", 19, 3, 5, 0b111, 1, 1),
    row("ai.onnx", "DepthToSpace", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "DequantizeLinear", 10, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "Det", 11, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Div", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Dropout", 1, 1, 1, 0b1, 1, 2),
    row("ai.onnx", "Dropout", 12, 1, 3, 0b1, 1, 2),
    row("ai.onnx", "DynamicQuantizeLinear", 11, 1, 1, 0b1, 3, 3),
    row("ai.onnx", "Einsum", 12, 1, ANY, 0b0, 1, 1),
    row("ai.onnx", "Elu", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Equal", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Erf", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Exp", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Expand", 8, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "EyeLike", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Flatten", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Floor", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "GRU", 1, 3, 6, 0b111, 2, 2),
    row("ai.onnx", "GRU", 3, 3, 6, 0b111, 0, 2),
    row("ai.onnx", "Gather", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "GatherElements", 11, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "GatherND", 11, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Gelu", 20, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Gemm", 1, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "Gemm", 11, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "GlobalAveragePool", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "GlobalLpPool", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "GlobalMaxPool", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Greater", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "GreaterOrEqual", 12, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "GridSample", 16, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "GroupNormalization", 18, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "HammingWindow", 17, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "HannWindow", 17, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "HardSigmoid", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "HardSwish", 14, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Hardmax", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Identity", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "If", 1, 1, 1, 0b1, 1, ANY),
    row("ai.onnx", "ImageDecoder", 20, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "InstanceNormalization", 1, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "IsInf", 10, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "IsNaN", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "LRN", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "LSTM", 1, 3, 8, 0b111, 0, 3),
    row("ai.onnx", "LayerNormalization", 17, 2, 3, 0b11, 1, 3),
    row("ai.onnx", "LeakyRelu", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Less", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "LessOrEqual", 12, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "LinearAttention", 27, 3, 6, 0b111, 2, 2),
    row("ai.onnx", "Log", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "LogSoftmax", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Loop", 1, 3, ANY, 0b0, 1, ANY),
    row("ai.onnx", "Loop", 11, 2, ANY, 0b0, 1, ANY),
    row("ai.onnx", "LpNormalization", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "LpPool", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "MatMul", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "MatMulInteger", 10, 2, 4, 0b11, 1, 1),
    row("ai.onnx", "Max", 1, 1, ANY, 0b0, 1, 1),
    row("ai.onnx", "MaxPool", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "MaxPool", 8, 1, 1, 0b1, 1, 2),
    row("ai.onnx", "MaxRoiPool", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "MaxUnpool", 9, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "Mean", 1, 1, ANY, 0b0, 1, 1),
    row("ai.onnx", "MeanVarianceNormalization", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "MelWeightMatrix", 17, 5, 5, 0b11111, 1, 1),
    row("ai.onnx", "Min", 1, 1, ANY, 0b0, 1, 1),
    row("ai.onnx", "Mish", 18, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Mod", 10, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Mul", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Multinomial", 7, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Neg", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "NegativeLogLikelihoodLoss", 12, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "NonMaxSuppression", 10, 2, 5, 0b11, 1, 1),
    row("ai.onnx", "NonZero", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Not", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "OneHot", 9, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "Optional", 15, 0, 1, 0b0, 1, 1),
    row("ai.onnx", "OptionalGetElement", 15, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "OptionalHasElement", 15, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "OptionalHasElement", 18, 0, 1, 0b0, 1, 1),
    row("ai.onnx", "Or", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "PRelu", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Pad", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Pad", 11, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "Pad", 18, 2, 4, 0b11, 1, 1),
    row("ai.onnx", "Pow", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "QLinearConv", 10, 8, 9, 0b11111111, 1, 1),
    row("ai.onnx", "QLinearMatMul", 10, 8, 8, 0b11111111, 1, 1),
    row("ai.onnx", "QuantizeLinear", 10, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "RMSNormalization", 23, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "RNN", 1, 3, 6, 0b111, 0, 2),
    row("ai.onnx", "RandomNormal", 1, 0, 0, 0b0, 1, 1),
    row("ai.onnx", "RandomNormalLike", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "RandomUniform", 1, 0, 0, 0b0, 1, 1),
    row("ai.onnx", "RandomUniformLike", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Range", 11, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "Reciprocal", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceL1", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceL1", 18, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "ReduceL2", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceL2", 18, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "ReduceLogSum", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceLogSum", 18, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "ReduceLogSumExp", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceLogSumExp", 18, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "ReduceMax", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceMax", 18, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "ReduceMean", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceMean", 18, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "ReduceMin", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceMin", 18, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "ReduceProd", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceProd", 18, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "ReduceSum", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceSum", 13, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "ReduceSumSquare", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ReduceSumSquare", 18, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "RegexFullMatch", 20, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Relu", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Reshape", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Reshape", 5, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Resize", 10, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Resize", 11, 3, 4, 0b111, 1, 1),
    row("ai.onnx", "Resize", 13, 1, 4, 0b1, 1, 1),
    row("ai.onnx", "ReverseSequence", 10, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "RoiAlign", 10, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "RotaryEmbedding", 23, 3, 4, 0b111, 1, 1),
    row("ai.onnx", "Round", 11, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "STFT", 17, 2, 4, 0b11, 1, 1),
    row("ai.onnx", "Scan", 8, 2, ANY, 0b0, 1, ANY),
    row("ai.onnx", "Scan", 9, 1, ANY, 0b0, 1, ANY),
    row("ai.onnx", "Scatter", 9, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "ScatterElements", 11, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "ScatterND", 11, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "Selu", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "SequenceAt", 11, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "SequenceConstruct", 11, 1, ANY, 0b0, 1, 1),
    row("ai.onnx", "SequenceEmpty", 11, 0, 0, 0b0, 1, 1),
    row("ai.onnx", "SequenceErase", 11, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "SequenceInsert", 11, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "SequenceLength", 11, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "SequenceMap", 17, 1, ANY, 0b1, 1, ANY),
    row("ai.onnx", "Shape", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Shrink", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Sigmoid", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Sign", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Sin", 7, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Sinh", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Size", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Slice", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Slice", 10, 3, 5, 0b111, 1, 1),
    row("ai.onnx", "Softmax", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "SoftmaxCrossEntropyLoss", 12, 2, 3, 0b11, 1, 2),
    row("ai.onnx", "Softplus", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Softsign", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "SpaceToDepth", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Split", 1, 1, 2, 0b1, 1, ANY),
    row("ai.onnx", "Split", 2, 1, 1, 0b1, 1, ANY),
    row("ai.onnx", "Split", 13, 1, 2, 0b1, 1, ANY),
    row("ai.onnx", "SplitToSequence", 11, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "Sqrt", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Squeeze", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Squeeze", 13, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "StringConcat", 20, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "StringNormalizer", 10, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "StringSplit", 20, 1, 1, 0b1, 2, 2),
    row("ai.onnx", "Sub", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Sum", 1, 1, ANY, 0b0, 1, 1),
    row("ai.onnx", "SwiGLU", 28, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Swish", 24, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Tan", 7, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Tanh", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "TensorScatter", 24, 2, 3, 0b11, 1, 1),
    row("ai.onnx", "TfIdfVectorizer", 9, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "ThresholdedRelu", 10, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Tile", 1, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "Tile", 6, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "TopK", 1, 1, 1, 0b1, 2, 2),
    row("ai.onnx", "TopK", 10, 2, 2, 0b11, 2, 2),
    row("ai.onnx", "Transpose", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Trilu", 14, 1, 2, 0b1, 1, 1),
    row("ai.onnx", "Unique", 11, 1, 1, 0b1, 1, 4),
    row("ai.onnx", "Unsqueeze", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Unsqueeze", 13, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Upsample", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx", "Upsample", 9, 2, 2, 0b11, 1, 1),
    row("ai.onnx", "Where", 9, 3, 3, 0b111, 1, 1),
    row("ai.onnx", "Xor", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx.ml", "ArrayFeatureExtractor", 1, 2, 2, 0b11, 1, 1),
    row("ai.onnx.ml", "Binarizer", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "CastMap", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "CategoryMapper", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "DictVectorizer", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "FeatureVectorizer", 1, 1, ANY, 0b0, 1, 1),
    row("ai.onnx.ml", "Imputer", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "LabelEncoder", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "LinearClassifier", 1, 1, 1, 0b1, 2, 2),
    row("ai.onnx.ml", "LinearRegressor", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "Normalizer", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "OneHotEncoder", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "SVMClassifier", 1, 1, 1, 0b1, 2, 2),
    row("ai.onnx.ml", "SVMRegressor", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "Scaler", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "TreeEnsemble", 5, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "TreeEnsembleClassifier", 1, 1, 1, 0b1, 2, 2),
    row("ai.onnx.ml", "TreeEnsembleRegressor", 1, 1, 1, 0b1, 1, 1),
    row("ai.onnx.ml", "ZipMap", 1, 1, 1, 0b1, 1, 1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(TABLE.is_sorted_by_key(|row| (row.domain, row.op, row.since)));
    }

    #[test]
    fn numbers_are_judged_by_version() {
        let check = |op, version, inputs: &[bool], outputs| complaint("ai.onnx", op, version, inputs, outputs);
        assert_eq!(check("Concat", 13, &[], 1).unwrap(), "Concat needs at least 1 input, but has 0");
        assert_eq!(check("Concat", 13, &[true; 300], 1), None);
        assert_eq!(check("Relu", 21, &[true, true], 1).unwrap(), "Relu takes at most 1 input, but has 2");
        assert_eq!(check("Relu", 21, &[true, false], 1), None);
        assert_eq!(check("Relu", 21, &[false], 1).unwrap(), "input 0 of Relu cannot be left out");
        assert_eq!(check("Relu", 21, &[true], 2).unwrap(), "Relu has at most 1 output, but 2 are named");
        assert_eq!(check("Relu", 21, &[true], 0).unwrap(), "Relu has at least 1 output, but 0 are named");
        // Squeeze takes its axes as an input since version 13.
        assert!(check("Squeeze", 11, &[true, true], 1).is_some());
        assert_eq!(check("Squeeze", 13, &[true, true], 1), None);
        // Clip's bounds may be left out.
        assert_eq!(check("Clip", 13, &[true, false, true], 1), None);
        assert_eq!(check("NoSuchOperator", 13, &[], 0), None);
        assert_eq!(complaint("com.example", "Relu", 1, &[], 0), None);
    }
}
