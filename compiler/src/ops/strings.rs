//! Tensors of strings: bytes along one axis more, behind the others, with zeros after the end of each string.
//!
//! The context marks such tensors ([`Cx::narrow`]). Operators that only move elements are expanded on the numbers of the
//! strings, and the strings are taken by these numbers; the few that look at strings are here and in [`super::text`].

use super::contrib::apply;
use super::narrow::mark;
use super::operand::Operand;
use super::sizes::{invalid, unsupported};
use super::{AttrValue, Call, Expand};
use crate::dtype::DType;
use crate::graph::ElemType;
use crate::sym::Int;
use crate::te::cx::{broadcast_index, flatten};
use crate::te::{Cx, Expr, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "StringConcat", concat_pairs)];

/// Operators that only move elements of their first operand.
const MOVES: &[&str] = &[
    "Identity",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Slice",
    "Gather",
    "GatherElements",
    "GatherND",
    "Compress",
    "Expand",
    "Tile",
    "Split",
    "ReverseSequence",
];

/// Is it a tensor of strings?
pub(super) fn is_text(cx: &Cx, t: TensorId) -> bool {
    cx.narrow.get(&t) == Some(&ElemType::String)
}

/// The bytes of strings, as a row-major constant: all have the length of the longest, and at least one.
pub fn stored(strings: &[Vec<u8>]) -> (usize, Vec<u8>) {
    let width = strings.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut bytes = vec![0; width * strings.len()];
    for (to, from) in bytes.chunks_mut(width).zip(strings) {
        to[..from.len()].copy_from_slice(from);
    }
    (width, bytes)
}

/// A tensor of strings.
#[derive(Clone)]
pub(super) struct Text {
    bytes: Operand,
}

impl Text {
    pub(super) fn of(cx: &Cx, t: TensorId) -> OpResult<Text> {
        if !is_text(cx, t) {
            return invalid(format!("element type {}, strings are needed", cx.dtype(t)));
        }
        Ok(Text { bytes: Operand::of(cx, t) })
    }

    /// A list of constant strings.
    pub(super) fn list(cx: &mut Cx, strings: &[String]) -> Text {
        let strings: Vec<Vec<u8>> = strings.iter().map(|s| s.as_bytes().to_vec()).collect();
        let (width, bytes) = stored(&strings);
        let t = cx.constant(DType::U8, &[strings.len(), width], bytes);
        mark(cx, t, ElemType::String);
        Text { bytes: Operand::of(cx, t) }
    }

    /// The tensor of bytes.
    pub(super) fn id(&self) -> TensorId {
        self.bytes.id
    }

    /// Dimensions, without that of the bytes.
    pub(super) fn shape(&self) -> &[Int] {
        &self.bytes.shape[..self.bytes.rank() - 1]
    }

    /// Bytes of the longest string that there is room for.
    pub(super) fn width(&self) -> Int {
        self.bytes.shape[self.bytes.rank() - 1]
    }

    /// Byte `k` of a string; zero behind its end.
    pub(super) fn at(&self, index: &[Int], k: Int) -> Expr {
        let inside = super::scalar::within(k, 0, self.width());
        let last = k.max(0).min((self.width() - 1).max(0));
        let byte = self.bytes.at(&[index, &[last]].concat());
        inside.then(byte, byte.num(0.0))
    }

    /// The index within this tensor for that of one that it broadcasts to.
    pub(super) fn spread(&self, index: &[Int]) -> Vec<Int> {
        let inner = &index[index.len() - self.shape().len()..];
        self.shape().iter().zip(inner).map(|(d, i)| broadcast_index(*d, *i)).collect()
    }

    /// The number of bytes of each string.
    pub(super) fn lengths(&self, cx: &mut Cx) -> Operand {
        let t = cx.reduce(ReduceKind::Sum, DType::I64, self.shape().to_vec(), &[self.width()], |i, r| {
            let b = self.at(i, r[0]);
            b.ne_(b.num(0.0)).to(DType::I64)
        });
        Operand::of(cx, t)
    }
}

/// A new tensor of strings, of shape `shape` and `width` bytes each.
pub(super) fn made(cx: &mut Cx, shape: &[Int], width: Int, f: impl FnOnce(&[Int], Int) -> Expr) -> TensorId {
    let all = [shape, &[width]].concat();
    let t = cx.map(DType::U8, all, |i| f(&i[..i.len() - 1], i[i.len() - 1]));
    mark(cx, t, ElemType::String);
    t
}

/// A tensor of bytes as strings.
pub(super) fn text_of(cx: &mut Cx, bytes: Operand) -> Text {
    mark(cx, bytes.id, ElemType::String);
    Text { bytes }
}

/// Are the strings equal? As a tensor of the shape that both broadcast to.
pub(super) fn equal(cx: &mut Cx, a: &Text, b: &Text) -> OpResult<TensorId> {
    let shape = cx.broadcast(&[a.shape().to_vec(), b.shape().to_vec()])?;
    let width = a.width().max(b.width());
    let differ = cx.reduce(ReduceKind::Max, DType::I32, shape.clone(), &[width], |i, r| {
        let (x, y) = (a.at(&a.spread(i), r[0]), b.at(&b.spread(i), r[0]));
        x.ne_(y).to(DType::I32)
    });
    let differ = Operand::of(cx, differ);
    Ok(cx.map(DType::Bool, shape, |i| {
        let d = differ.at(i);
        d.le_(d.num(0.0))
    }))
}

/// For each string, which of a list of strings it is equal to: the first's number, or -1.
pub(super) fn numbers(cx: &mut Cx, x: &Text, list: &[String]) -> OpResult<Operand> {
    let shape = x.shape().to_vec();
    if list.is_empty() {
        let t = cx.map(DType::I64, shape, |_| expr::constant_i64(DType::I64, -1));
        return Ok(Operand::of(cx, t));
    }
    let ones = [&shape[..], &[Int::new(1)]].concat();
    let whole = [&ones[..], &[x.width()]].concat();
    let column = cx.view(x.id(), whole);
    mark(cx, column, ElemType::String);
    let (column, list) = (Text::of(cx, column)?, Text::list(cx, list));
    let hits = equal(cx, &column, &list)?;
    let hits = Operand::of(cx, hits);
    let count = list.shape()[0];
    // Counted from the end, so that the first is the largest.
    let found = cx.reduce(ReduceKind::Max, DType::I64, shape.clone(), &[count], |i, r| {
        let back = expr::int(count - r[0]);
        hits.at(&[i, r].concat()).then(back, back.num(0.0))
    });
    let found = Operand::of(cx, found);
    let t = cx.map(DType::I64, shape, |i| {
        let back = found.at(i);
        back.gt_(back.num(0.0)).then(expr::int(count) - back, back.num(-1.0))
    });
    Ok(Operand::of(cx, t))
}

/// The strings with these numbers (row-major) among those of `x`, in the shape of the numbers.
pub(super) fn taken(cx: &mut Cx, x: &Text, numbers: TensorId) -> TensorId {
    let count = Int::product(x.shape());
    let flat = cx.view(x.id(), vec![count, x.width()]);
    let (flat, numbers) = (Operand::of(cx, flat), Operand::of(cx, numbers));
    made(cx, &numbers.shape, x.width(), |i, k| {
        let row = expr::as_int(numbers.at(i)).max(0).min((count - 1).max(0));
        flat.at(&[row, k])
    })
}

/// Expands an operator that has operands of strings.
pub(super) fn expand(cx: &mut Cx, call: &Call, f: Expand) -> OpResult {
    let standard = call.domain.is_empty();
    let op = call.op.as_str();
    match op {
        "StringConcat" | "StringNormalizer" | "StringSplit" | "RegexFullMatch" | "TfIdfVectorizer" | "Cast"
        | "CastLike" | "Unique"
            if standard =>
        {
            return f(cx, call);
        }
        "LabelEncoder" | "CategoryMapper" if call.domain == "ai.onnx.ml" => return f(cx, call),
        "Equal" if standard => {
            let (a, b) = (Text::of(cx, call.input(0)?)?, Text::of(cx, call.input(1)?)?);
            return Ok(vec![equal(cx, &a, &b)?]);
        }
        "Concat" if standard => return concat(cx, call),
        "Where" if standard => return choose(cx, call),
        _ => {}
    }
    let measures = matches!(op, "Shape" | "Size");
    if !standard || !(measures || MOVES.contains(&op)) {
        return unsupported("strings are not supported by this operator");
    }
    let x = Text::of(cx, call.input(0)?)?;
    let shape = x.shape().to_vec();
    let rows = cx.map(DType::I64, shape.clone(), |i| expr::int(flatten(&shape, i)));
    let mut inner = call.clone();
    inner.inputs[0] = Some(rows);
    let out = f(cx, &inner)?;
    if measures {
        return Ok(out);
    }
    Ok(out.into_iter().map(|numbers| taken(cx, &x, numbers)).collect())
}

fn widened(cx: &mut Cx, x: &Text, width: Int) -> TensorId {
    if x.width() == width { x.id() } else { made(cx, x.shape(), width, |i, k| x.at(i, k)) }
}

/// The same tensor, without its mark: an operator on bytes takes it as it is.
fn unmarked(cx: &mut Cx, t: TensorId) -> TensorId {
    let o = Operand::of(cx, t);
    cx.map(o.dtype, o.shape.clone(), |i| o.at(i))
}

fn concat(cx: &mut Cx, call: &Call) -> OpResult {
    let texts = (0..call.inputs.len()).map(|k| Text::of(cx, call.input(k)?)).collect::<OpResult<Vec<_>>>()?;
    let Some(first) = texts.first() else { return invalid("no operands") };
    let Some(axis) = call.opt_int("axis")? else { return invalid("attribute 'axis' is missing") };
    let axis = cx.axis(axis, first.shape().len())?;
    let width = texts.iter().fold(Int::new(1), |w, t| w.max(t.width()));
    let mut parts = vec![];
    for t in &texts {
        let wide = widened(cx, t, width);
        parts.push(Some(unmarked(cx, wide)));
    }
    let y = apply(cx, "Concat", &parts, &[("axis", AttrValue::Int(axis as i64))])?;
    mark(cx, y, ElemType::String);
    Ok(vec![y])
}

fn choose(cx: &mut Cx, call: &Call) -> OpResult {
    let condition = Operand::of(cx, call.input(0)?);
    let (a, b) = (Text::of(cx, call.input(1)?)?, Text::of(cx, call.input(2)?)?);
    if condition.dtype != DType::Bool {
        return invalid(format!("condition of type {}, bools are needed", condition.dtype));
    }
    let shape = cx.broadcast(&[condition.shape.clone(), a.shape().to_vec(), b.shape().to_vec()])?;
    let width = a.width().max(b.width());
    Ok(vec![made(cx, &shape, width, |i, k| condition.spread(i).then(a.at(&a.spread(i), k), b.at(&b.spread(i), k)))])
}

/// The second string behind the first.
fn concat_pairs(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (Text::of(cx, call.input(0)?)?, Text::of(cx, call.input(1)?)?);
    let shape = cx.broadcast(&[a.shape().to_vec(), b.shape().to_vec()])?;
    let lengths = a.lengths(cx);
    Ok(vec![made(cx, &shape, a.width() + b.width(), |i, k| {
        let (own, other) = (a.spread(i), b.spread(i));
        let length = expr::as_int(lengths.at(&own));
        super::scalar::lt(k, length).then(a.at(&own, k), b.at(&other, k - length))
    })])
}
