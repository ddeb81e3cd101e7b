//! Operators on strings: normalisation, splitting, regular expressions, and the encoders of classical models.

use super::kernels::{close, open};
use super::letters;
use super::operand::Operand;
use super::regex::Automaton;
use super::sizes::{input_count, invalid, unsupported};
use super::strings::{Text, is_text, made, numbers, taken};
use super::{AttrValue, Call, Expand, expand};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg};
use crate::sym::Int;
use crate::te::{Cx, OpResult, ReduceKind, TensorId, expr};

const ML: &str = "ai.onnx.ml";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "StringNormalizer", normalizer),
    ("", "StringSplit", split),
    ("", "RegexFullMatch", full_match),
    (ML, "LabelEncoder", label_encoder),
    (ML, "CategoryMapper", category_mapper),
];

/// Leaves out stop words and changes the case of what is left. Nothing left is one empty string.
fn normalizer(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Text::of(cx, call.input(0)?)?;
    let change = match call.string("case_change_action", "NONE".into())?.as_str() {
        "NONE" => None,
        "UPPER" => Some(true),
        "LOWER" => Some(false),
        other => return invalid(format!("case_change_action = '{other}'")),
    };
    let sensitive = call.int("is_case_sensitive", 0)? != 0;
    let stop = call.strings("stopwords", vec![])?;
    let count = match *x.shape() {
        [n] => n,
        [one, n] => {
            cx.require_equal(one, Int::new(1), "rows of the strings")?;
            n
        }
        ref s => return invalid(format!("strings of rank {}, 1 or 2 is needed", s.len())),
    };
    let flat = made(cx, &[count], x.width(), |i, k| {
        let at = if x.shape().len() == 1 { i.to_vec() } else { vec![Int::new(0), i[0]] };
        x.at(&at, k)
    });
    let flat = Text::of(cx, flat)?;
    let (kept, left) = if stop.is_empty() {
        (flat.clone(), count)
    } else {
        let (seen, list) = if sensitive {
            (flat.clone(), stop)
        } else {
            (letters::cased(cx, &flat, false)?, stop.iter().map(|s| letters::changed(s, false)).collect())
        };
        let which = numbers(cx, &seen, &list)?;
        let keep = cx.map(DType::Bool, vec![count], |i| {
            let n = which.at(i);
            n.lt_(n.num(0.0))
        });
        let rows = cx.map(DType::I64, vec![count], |i| expr::int(i[0]));
        let rows = super::contrib::apply(cx, "Compress", &[Some(rows), Some(keep)], &[("axis", AttrValue::Int(0))])?;
        let left = cx.shape(rows)[0];
        let kept = taken(cx, &flat, rows);
        (Text::of(cx, kept)?, left)
    };
    let kept = match change {
        Some(upper) => letters::cased(cx, &kept, upper)?,
        None => kept,
    };
    let shape = if x.shape().len() == 1 { vec![left.max(1)] } else { vec![Int::new(1), left.max(1)] };
    Ok(vec![made(cx, &shape, kept.width(), |i, k| {
        let at = i[i.len() - 1];
        let there = super::scalar::lt(at, left);
        let byte = kept.at(&[at.min((left - 1).max(0))], k);
        there.then(byte, byte.num(0.0))
    })])
}

/// Where the parts of strings begin and end.
struct Parts {
    /// `[string, part]`.
    starts: Operand,
    ends: Operand,
    /// How many each string has.
    counts: TensorId,
}

/// Finds the parts between delimiters, at most `most` of them; without a delimiter, the words between white space.
fn parts(cx: &mut Cx, x: &Text, delimiter: &[u8], most: i64) -> Parts {
    let count = Int::product(x.shape());
    let (width, room) = (x.width(), x.width() + 1);
    let flat = cx.view(x.id(), vec![count, width]);
    let lengths = x.lengths(cx);
    let lengths = cx.view(lengths.id, vec![count]);
    let table = vec![(DType::I64, vec![count, room]), (DType::I64, vec![count, room]), (DType::I64, vec![count])];
    let delimiter = delimiter.to_vec();
    let made = cx.custom("split", &[flat, lengths], table, vec![], move |k| {
        let (count, width, room) = (k.int(count), k.int(width), k.int(room));
        let ([text, lengths], [starts, ends, counts]) = (&k.inputs[..], &k.outputs[..]) else { return };
        let (text, lengths, starts, ends, counts) = (*text, *lengths, *starts, *ends, *counts);
        let b = &mut *k.b;
        let row = open(b, &[count])[0];
        let (zero, one) = (b.i64(0), b.i64(1));
        let first = b.mul(row, width);
        let base = b.mul(row, room);
        let length = b.load(lengths, row, 0, 1);
        // What is not a part is empty.
        b.for_(zero, room, 1, |b, j| {
            let at = b.add(base, j);
            b.store(starts, at, 0, zero);
            b.store(ends, at, 0, zero);
        });
        let found = b.var_init(zero);
        let begin = b.var_init(zero);
        let skip = b.var_init(zero);
        let end_part = |b: &mut Builder, at: Reg| {
            let n = b.get(found);
            let place = b.add(base, n);
            let from = b.get(begin);
            b.store(starts, place, 0, from);
            b.store(ends, place, 0, at);
            let next = b.add(n, one);
            b.set(found, next);
        };
        let last = b.i64(most - 1);
        if delimiter.is_empty() {
            // `skip` is 1 within a word.
            b.for_(zero, length, 1, |b, j| {
                let at = b.add(first, j);
                let byte = b.load(text, at, 0, 1);
                let byte = b.cast(DType::I64, byte);
                let space = b.i64(32);
                let blank = b.cmp(Cmp::Eq, byte, space);
                let (tab, back) = (b.i64(9), b.i64(13));
                let above = b.cmp(Cmp::Ge, byte, tab);
                let below = b.cmp(Cmp::Le, byte, back);
                let control = b.and(above, below);
                let blank = b.or(blank, control);
                let inside = b.get(skip);
                let inside = b.cmp(Cmp::Eq, inside, one);
                let n = b.get(found);
                let open = b.cmp(Cmp::Lt, n, last);
                let ends_word = b.and(blank, inside);
                let ends_word = b.and(ends_word, open);
                b.if_(
                    ends_word,
                    |b| {
                        end_part(b, j);
                        b.set(skip, zero);
                    },
                    |_| {},
                );
                let solid = b.not(blank);
                let outside = b.not(inside);
                let begins = b.and(solid, outside);
                b.if_(
                    begins,
                    |b| {
                        b.set(begin, j);
                        b.set(skip, one);
                    },
                    |_| {},
                );
            });
            let inside = b.get(skip);
            let inside = b.cmp(Cmp::Eq, inside, one);
            b.if_(inside, |b| end_part(b, length), |_| {});
        } else {
            // `skip` is where the last delimiter ends.
            let size = b.i64(delimiter.len() as i64);
            b.for_(zero, length, 1, |b, j| {
                let end = b.add(j, size);
                let mut hit = b.cmp(Cmp::Le, end, length);
                let behind = b.get(skip);
                let free = b.cmp(Cmp::Le, behind, j);
                hit = b.and(hit, free);
                let n = b.get(found);
                let open = b.cmp(Cmp::Lt, n, last);
                hit = b.and(hit, open);
                b.if_(
                    hit,
                    |b| {
                        let mut same = b.bool(true);
                        for (k, byte) in delimiter.iter().enumerate() {
                            let k = b.i64(k as i64);
                            let at = b.add(j, k);
                            let at = b.add(first, at);
                            let seen = b.load(text, at, 0, 1);
                            let seen = b.cast(DType::I64, seen);
                            let wanted = b.i64(i64::from(*byte));
                            let eq = b.cmp(Cmp::Eq, seen, wanted);
                            same = b.and(same, eq);
                        }
                        b.if_(
                            same,
                            |b| {
                                end_part(b, j);
                                b.set(begin, end);
                                b.set(skip, end);
                            },
                            |_| {},
                        );
                    },
                    |_| {},
                );
            });
            end_part(b, length);
        }
        let n = b.get(found);
        b.store(counts, row, 0, n);
        close(b, 1);
    });
    Parts { starts: Operand::of(cx, made[0]), ends: Operand::of(cx, made[1]), counts: made[2] }
}

/// Parts along a new last axis, empty strings behind the last of each, and their numbers.
fn split(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Text::of(cx, call.input(0)?)?;
    let delimiter = call.string("delimiter", String::new())?;
    // So many cuts; the rest stays in the last part.
    let most = match call.opt_int("maxsplit")? {
        Some(n) if n >= 0 => n.saturating_add(1),
        Some(n) => return invalid(format!("maxsplit = {n}")),
        None => i64::from(i32::MAX),
    };
    let p = parts(cx, &x, delimiter.as_bytes(), most);
    let counts = Operand::of(cx, p.counts);
    let each = counts.shape.clone();
    let widest = cx.reduce(ReduceKind::Max, DType::I64, vec![], &each, |_, r| counts.at(r));
    let widest = Operand::of(cx, widest);
    let widest = cx.map(DType::I64, vec![Int::new(1)], |_| {
        let n = widest.at(&[]);
        n.max_(n.num(0.0))
    });
    let columns = super::counted::counted(cx, widest, x.width() + 1);
    let shape = [x.shape(), &[columns]].concat();
    let outer = x.shape().to_vec();
    let y = made(cx, &shape, x.width(), |i, k| {
        let (part, head) = (i[i.len() - 1], &i[..i.len() - 1]);
        let row = crate::te::cx::flatten(&outer, head);
        let (from, to) = (p.starts.at(&[row, part]), p.ends.at(&[row, part]));
        let at = expr::as_int(from) + k;
        let byte = x.at(head, at);
        expr::int(at).lt_(to).then(byte, byte.num(0.0))
    });
    Ok(vec![y, cx.view(p.counts, outer)])
}

/// Does the whole of each string match?
fn full_match(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Text::of(cx, call.input(0)?)?;
    let pattern = call.string("pattern", String::new())?;
    let automaton = match Automaton::of(&pattern) {
        Ok(a) => a,
        Err(e) => return unsupported(format!("pattern '{pattern}': {e}")),
    };
    let states = automaton.accepting.len();
    let next = automaton.next.iter().flat_map(|s| s.to_le_bytes()).collect();
    let next = cx.constant(DType::I32, &[states, 256], next);
    let accepting = automaton.accepting.iter().map(|a| u8::from(*a)).collect();
    let accepting = cx.constant(DType::Bool, &[states], accepting);
    let count = Int::product(x.shape());
    let width = x.width();
    let flat = cx.view(x.id(), vec![count, width]);
    let outputs = vec![(DType::Bool, x.shape().to_vec())];
    Ok(cx.custom("full_match", &[flat, next, accepting], outputs, vec![], move |k| {
        let (count, width) = (k.int(count), k.int(width));
        let ([text, next, accepting], [out]) = (&k.inputs[..], &k.outputs[..]) else { return };
        let (text, next, accepting, out) = (*text, *next, *accepting, *out);
        let b = &mut *k.b;
        let row = open(b, &[count])[0];
        let (zero, symbols) = (b.i64(0), b.i64(256));
        let first = b.mul(row, width);
        let state = b.var_init(zero);
        b.for_(zero, width, 1, |b, j| {
            let at = b.add(first, j);
            let byte = b.load(text, at, 0, 1);
            let byte = b.cast(DType::I64, byte);
            let there = b.cmp(Cmp::Ne, byte, zero);
            b.if_(
                there,
                |b| {
                    let s = b.get(state);
                    let line = b.mul(s, symbols);
                    let at = b.add(line, byte);
                    let to = b.load(next, at, 0, 1);
                    let to = b.cast(DType::I64, to);
                    b.set(state, to);
                },
                |_| {},
            );
        });
        let s = b.get(state);
        let yes = b.load(accepting, s, 0, 1);
        b.store(out, row, 0, yes);
        close(b, 1);
    }))
}

/// `TfIdfVectorizer` on strings: their numbers among those of the pool, counted in their place.
pub(super) fn numbered(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Text::of(cx, call.input(0)?)?;
    let Some(pool) = call.opt_strings("pool_strings")? else {
        return invalid("attribute 'pool_strings' is missing");
    };
    let mut list: Vec<String> = vec![];
    let mut places = vec![];
    for word in &pool {
        let at = list.iter().position(|known| known == word);
        places.push(at.unwrap_or(list.len()) as i64);
        if at.is_none() {
            list.push(word.clone());
        }
    }
    let which = numbers(cx, &x, &list)?;
    let mut inner = call.clone();
    inner.inputs[0] = Some(which.id);
    inner.attrs.remove("pool_strings");
    inner.attrs.insert("pool_int64s".into(), AttrValue::Ints(places));
    expand(cx, &inner)
}

/// A list of keys or values of an encoder.
enum List {
    Strings(Vec<String>),
    /// As a constant vector.
    Numbers(Operand),
}

impl List {
    fn len(&self) -> Int {
        match self {
            List::Strings(s) => Int::from(s.len()),
            List::Numbers(o) => o.shape[0],
        }
    }
}

/// The list that an encoder has in one of several attributes: `keys_strings`, `keys_int64s`, `keys_floats`, `keys_tensor`.
fn list(cx: &mut Cx, call: &Call, what: &str) -> OpResult<Option<List>> {
    let named = |kind: &str| format!("{what}_{kind}");
    if let Some(s) = call.opt_strings(&named("strings"))? {
        return Ok(Some(List::Strings(s)));
    }
    if let Some(v) = call.opt_ints(&named("int64s"))? {
        let t = cx.constant_i64(&[v.len()], &v);
        return Ok(Some(List::Numbers(Operand::of(cx, t))));
    }
    if let Some(v) = call.opt_floats(&named("floats"))? {
        let t = cx.constant_f32(&[v.len()], &v);
        return Ok(Some(List::Numbers(Operand::of(cx, t))));
    }
    match call.attrs.get(&named("tensor")) {
        None => Ok(None),
        Some(AttrValue::Strs(s)) => Ok(Some(List::Strings(s.clone()))),
        Some(AttrValue::Tensor(t)) => {
            let count: usize = t.shape.iter().product();
            let t = cx.constant_shared(t.dtype, vec![Int::from(count)], t.bytes.clone());
            Ok(Some(List::Numbers(Operand::of(cx, t))))
        }
        Some(_) => invalid(format!("attribute '{what}_tensor' must be a tensor")),
    }
}

/// For each element its number among the keys, the first that is equal, or -1.
fn places(cx: &mut Cx, x: TensorId, keys: &List) -> OpResult<Operand> {
    match keys {
        List::Strings(list) => {
            let text = Text::of(cx, x)?;
            numbers(cx, &text, list)
        }
        List::Numbers(list) => {
            let x = Operand::of(cx, x);
            if is_text(cx, x.id) || x.dtype != list.dtype {
                return invalid(format!("elements of type {} with keys of type {}", x.dtype, list.dtype));
            }
            let count = list.shape[0];
            let found = cx.reduce(ReduceKind::Max, DType::I64, x.shape.clone(), &[count], |i, r| {
                let back = expr::int(count - r[0]);
                let (v, key) = (x.at(i), list.at(r));
                let mut hit = v.eq_(key);
                if x.dtype.is_float() {
                    hit = hit | (v.is_nan() & key.is_nan());
                }
                hit.then(back, back.num(0.0))
            });
            let found = Operand::of(cx, found);
            let t = cx.map(DType::I64, x.shape.clone(), |i| {
                let back = found.at(i);
                back.gt_(back.num(0.0)).then(expr::int(count) - back, back.num(-1.0))
            });
            Ok(Operand::of(cx, t))
        }
    }
}

/// The values of these numbers; `default` for -1.
fn values_at(cx: &mut Cx, which: &Operand, values: &List, default: Default) -> OpResult {
    match (values, default) {
        (List::Strings(list), Default::String(default)) => {
            let mut all = list.clone();
            all.push(default);
            let last = list.len() as i64;
            let table = Text::list(cx, &all);
            let rows = cx.map(DType::I64, which.shape.clone(), |i| {
                let n = which.at(i);
                n.lt_(n.num(0.0)).then(n.num(last as f64), n)
            });
            Ok(vec![taken(cx, &table, rows)])
        }
        (List::Numbers(list), Default::Number(default)) => {
            let last = list.shape[0] - 1;
            Ok(vec![cx.map(list.dtype, which.shape.clone(), |i| {
                let n = which.at(i);
                let v = list.at(&[expr::as_int(n).max(0).min(last)]);
                n.lt_(n.num(0.0)).then(default(list.dtype), v)
            })])
        }
        _ => invalid("the default is of another type than the values"),
    }
}

/// What a missing key becomes.
enum Default {
    String(String),
    Number(Box<dyn Fn(DType) -> crate::te::Expr>),
}

fn label_encoder(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 1, 1)?;
    if call.version < 2 {
        return unsupported("version 1 of the operator");
    }
    let (Some(keys), Some(values)) = (list(cx, call, "keys")?, list(cx, call, "values")?) else {
        return invalid("keys or values are missing");
    };
    cx.require_equal(keys.len(), values.len(), "numbers of keys and values")?;
    let default = match (&values, call.attrs.get("default_tensor")) {
        (List::Strings(_), Some(AttrValue::Strs(s))) if s.len() == 1 => Default::String(s[0].clone()),
        (List::Strings(_), None) => Default::String(call.string("default_string", "_Unused".into())?),
        (List::Numbers(_), Some(AttrValue::Tensor(t))) if t.shape.iter().product::<usize>() == 1 => {
            let t = cx.constant_shared(t.dtype, vec![], t.bytes.clone());
            let o = Operand::of(cx, t);
            Default::Number(Box::new(move |to| o.only().to(to.compute())))
        }
        (List::Numbers(v), None) if v.dtype.is_float() => {
            let d = f64::from(call.float("default_float", -0.0)?);
            Default::Number(Box::new(move |to| expr::constant_f64(to, d)))
        }
        (List::Numbers(_), None) => {
            let d = call.int("default_int64", -1)?;
            Default::Number(Box::new(move |to| expr::constant_i64(to, d)))
        }
        _ => return invalid("attribute 'default_tensor' must be one element of the type of the values"),
    };
    let which = places(cx, call.input(0)?, &keys)?;
    values_at(cx, &which, &values, default)
}

/// Strings to their numbers or back.
fn category_mapper(cx: &mut Cx, call: &Call) -> OpResult {
    let (Some(strings), Some(ints)) = (call.opt_strings("cats_strings")?, call.opt_ints("cats_int64s")?) else {
        return invalid("attributes 'cats_strings' and 'cats_int64s' are needed");
    };
    if strings.len() != ints.len() || ints.is_empty() {
        return invalid(format!("{} strings and {} numbers", strings.len(), ints.len()));
    }
    let x = call.input(0)?;
    let t = cx.constant_i64(&[ints.len()], &ints);
    let (strings, ints) = (List::Strings(strings), List::Numbers(Operand::of(cx, t)));
    if is_text(cx, x) {
        let default = call.int("default_int64", -1)?;
        let which = places(cx, x, &strings)?;
        return values_at(cx, &which, &ints, Default::Number(Box::new(move |to| expr::constant_i64(to, default))));
    }
    let which = places(cx, x, &ints)?;
    let default = call.string("default_string", "_Unused".into())?;
    values_at(cx, &which, &strings, Default::String(default))
}
