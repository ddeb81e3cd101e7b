//! Letters in the other case.

use super::kernels::{close, open};
use super::operand::Operand;
use super::strings::{Text, text_of};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Cmp, Reg};
use crate::sym::Int;
use crate::te::{Cx, OpResult};

/// The letter in the other case, where that is one letter too: C's `towupper` and `towlower`, which onnxruntime goes by.
fn changed_letter(c: char, upper: bool) -> char {
    // Its small letter is written with a dot of its own.
    if c == 'İ' && !upper {
        return 'i';
    }
    let one = |mut all: Box<dyn Iterator<Item = char>>| match (all.next(), all.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    };
    if !upper {
        return one(Box::new(c.to_lowercase())).unwrap_or(c);
    }
    // Letters with an iota below are several in upper case, but have one of which they are the lower case.
    let with_iota = || match u32::from(c) {
        low @ 0x1f80..=0x1faf => char::from_u32(low | 8),
        0x1fb3 | 0x1fc3 | 0x1ff3 => char::from_u32(u32::from(c) + 9),
        _ => None,
    };
    one(Box::new(c.to_uppercase())).or_else(with_iota).unwrap_or(c)
}

/// A string in the other case.
pub(super) fn changed(s: &str, upper: bool) -> String {
    s.chars().map(|c| changed_letter(c, upper)).collect()
}

/// Letters beyond ASCII that change, in order, and what they become.
fn table(upper: bool) -> Vec<(char, char)> {
    let letters = ('\u{80}'..=char::MAX).map(|c| (c, changed_letter(c, upper)));
    letters.filter(|(from, to)| from != to).collect()
}

/// Strings in the other case. What is not UTF-8 stays.
pub(super) fn cased(cx: &mut Cx, x: &Text, upper: bool) -> OpResult<Text> {
    let table = table(upper);
    let list = |cx: &mut Cx, pick: fn(&(char, char)) -> char| {
        let bytes = table.iter().flat_map(|pair| u32::from(pick(pair)).to_le_bytes()).collect();
        cx.constant(DType::I32, &[table.len()], bytes)
    };
    let (from, to) = (list(cx, |pair| pair.0), list(cx, |pair| pair.1));
    let (count, width) = (Int::product(x.shape()), x.width());
    // Two bytes may become three, no others become more.
    let room = (width * 3).div(2);
    let flat = cx.view(x.id(), vec![count, width]);
    let size = table.len() as i64;
    let outputs = vec![(DType::U8, vec![count, room])];
    let made = cx.custom("cased", &[flat, from, to], outputs, vec![], move |k| {
        let (count, width, room) = (k.int(count), k.int(width), k.int(room));
        let ([text, from, to], [out]) = (&k.inputs[..], &k.outputs[..]) else { return };
        let (text, letters, out) = (*text, Letters { from: *from, to: *to, size, upper }, *out);
        let b = &mut *k.b;
        let row = open(b, &[count])[0];
        let (first, target) = (b.mul(row, width), b.mul(row, room));
        let zero = b.i64(0);
        let (at, place) = (b.var_init(zero), b.var_init(zero));
        b.while_(
            |b| {
                let at = b.get(at);
                b.cmp(Cmp::Lt, at, width)
            },
            |b| {
                let here = b.get(at);
                let byte = |b: &mut Builder, k: i64| {
                    let k = b.i64(k);
                    let at = b.add(here, k);
                    let (within, last) = (b.cmp(Cmp::Lt, at, width), b.i64(1));
                    let last = b.sub(width, last);
                    let at = b.min(at, last);
                    let at = b.add(first, at);
                    let c = b.load(text, at, 0, 1);
                    let c = b.cast(DType::I64, c);
                    b.select(within, c, zero)
                };
                let bytes = [byte(b, 0), byte(b, 1), byte(b, 2), byte(b, 3)];
                let (letter, length) = decoded(b, bytes);
                let next = b.add(here, length);
                b.set(at, next);
                let letter = letters.change(b, letter);
                let free = b.get(place);
                let base = b.add(target, free);
                let (encoded, count) = encoded(b, letter);
                // What is no letter is one byte as it is.
                let none = b.cmp(Cmp::Lt, letter, zero);
                let one = b.i64(1);
                let count = b.select(none, one, count);
                for (k, code) in encoded.into_iter().enumerate() {
                    let code = if k == 0 { b.select(none, bytes[0], code) } else { code };
                    let number = b.i64(k as i64);
                    let there = b.cmp(Cmp::Lt, number, count);
                    b.if_(
                        there,
                        |b| {
                            let code = b.cast(DType::U8, code);
                            b.store(out, base, k as i64, code);
                        },
                        |_| {},
                    );
                }
                let free = b.add(free, count);
                b.set(place, free);
            },
        );
        let end = b.get(place);
        let nothing = b.int(crate::kernel::ir::Type::scalar(DType::U8), 0);
        b.for_(end, room, 1, |b, k| {
            let at = b.add(target, k);
            b.store(out, at, 0, nothing);
        });
        close(b, 1);
    });
    let whole = cx.view(made[0], [x.shape(), &[room]].concat());
    Ok(text_of(cx, Operand::of(cx, whole)))
}

/// The number of the letter that begins with the first of four bytes, or -1, and how many bytes it has.
fn decoded(b: &mut Builder, bytes: [Reg; 4]) -> (Reg, Reg) {
    let six = b.i64(6);
    let mut follows = vec![];
    for byte in &bytes[1..] {
        let (mask, mark) = (b.i64(0xc0), b.i64(0x80));
        let top = b.and(*byte, mask);
        follows.push(b.cmp(Cmp::Eq, top, mark));
    }
    let (one, none, ascii) = (b.i64(1), b.i64(-1), b.i64(0x80));
    let plain = b.cmp(Cmp::Lt, bytes[0], ascii);
    let (mut letter, mut length) = (b.select(plain, bytes[0], none), one);
    for (count, mask, mark, head) in [(2, 0xe0, 0xc0, 0x1f), (3, 0xf0, 0xe0, 0x0f), (4, 0xf8, 0xf0, 0x07)] {
        let (mask, mark, head) = (b.i64(mask), b.i64(mark), b.i64(head));
        let top = b.and(bytes[0], mask);
        let mut whole = b.cmp(Cmp::Eq, top, mark);
        let mut number = b.and(bytes[0], head);
        for k in 1..count {
            whole = b.and(whole, follows[k - 1]);
            let low = b.i64(0x3f);
            let low = b.and(bytes[k], low);
            number = b.shl(number, six);
            number = b.or(number, low);
        }
        letter = b.select(whole, number, letter);
        let own = b.i64(count as i64);
        length = b.select(whole, own, length);
    }
    (letter, length)
}

/// A letter's bytes, and how many they are.
fn encoded(b: &mut Builder, letter: Reg) -> ([Reg; 4], Reg) {
    let six = b.i64(6);
    let (low, follows) = (b.i64(0x3f), b.i64(0x80));
    let shifted: Vec<Reg> = (0..3)
        .scan(letter, |rest, _| {
            let now = *rest;
            *rest = b.shr(now, six);
            Some(now)
        })
        .collect();
    let top = b.shr(shifted[2], six);
    let tail: Vec<Reg> = shifted
        .iter()
        .map(|part| {
            let part = b.and(*part, low);
            b.or(part, follows)
        })
        .collect();
    let (two, three, four) = (b.i64(0xc0), b.i64(0xe0), b.i64(0xf0));
    let (two, three, four) = (b.or(shifted[1], two), b.or(shifted[2], three), b.or(top, four));
    let bounds: Vec<Reg> = [0x80, 0x800, 0x1_0000]
        .into_iter()
        .map(|bound| {
            let bound = b.i64(bound);
            b.cmp(Cmp::Lt, letter, bound)
        })
        .collect();
    let mut pick = |of: [Reg; 4]| {
        let rest = b.select(bounds[2], of[2], of[3]);
        let rest = b.select(bounds[1], of[1], rest);
        b.select(bounds[0], of[0], rest)
    };
    let bytes = [
        pick([letter, two, three, four]),
        pick([letter, tail[0], tail[1], tail[2]]),
        pick([letter, letter, tail[0], tail[1]]),
        tail[0],
    ];
    let counts = [1, 2, 3, 4];
    let rest = [b.i64(counts[0]), b.i64(counts[1]), b.i64(counts[2]), b.i64(counts[3])];
    let last = b.select(bounds[2], rest[2], rest[3]);
    let last = b.select(bounds[1], rest[1], last);
    (bytes, b.select(bounds[0], rest[0], last))
}

/// [`table`] in the kernel.
#[derive(Clone, Copy)]
struct Letters {
    from: Buf,
    to: Buf,
    size: i64,
    upper: bool,
}

impl Letters {
    fn change(self, b: &mut Builder, letter: Reg) -> Reg {
        let (low, high) = if self.upper { (b'a', b'z') } else { (b'A', b'Z') };
        let (low, high) = (b.i64(low.into()), b.i64(high.into()));
        let (above, below) = (b.cmp(Cmp::Ge, letter, low), b.cmp(Cmp::Le, letter, high));
        let plain = b.and(above, below);
        // The cases differ in one bit.
        let bit = b.i64(32);
        let other = b.xor(letter, bit);
        let new = b.select(plain, other, letter);
        let new = b.var_init(new);
        let ascii = b.i64(0x80);
        let beyond = b.cmp(Cmp::Ge, letter, ascii);
        b.if_(
            beyond,
            |b| {
                // The first entry that is not before the letter.
                let (zero, one, size) = (b.i64(0), b.i64(1), b.i64(self.size));
                let (from, to) = (b.var_init(zero), b.var_init(size));
                b.while_(
                    |b| {
                        let (from, to) = (b.get(from), b.get(to));
                        b.cmp(Cmp::Lt, from, to)
                    },
                    |b| {
                        let (lo, hi) = (b.get(from), b.get(to));
                        let sum = b.add(lo, hi);
                        let middle = b.shr(sum, one);
                        let own = b.load(self.from, middle, 0, 1);
                        let own = b.cast(DType::I64, own);
                        let before = b.cmp(Cmp::Lt, own, letter);
                        let next = b.add(middle, one);
                        let lo = b.select(before, next, lo);
                        let hi = b.select(before, hi, middle);
                        b.set(from, lo);
                        b.set(to, hi);
                    },
                );
                let found = b.get(from);
                let last = b.i64(self.size - 1);
                let found = b.min(found, last);
                let own = b.load(self.from, found, 0, 1);
                let own = b.cast(DType::I64, own);
                let same = b.cmp(Cmp::Eq, own, letter);
                let other = b.load(self.to, found, 0, 1);
                let other = b.cast(DType::I64, other);
                let other = b.select(same, other, letter);
                b.set(new, other);
            },
            |_| {},
        );
        b.get(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_letter_grows_by_more_than_half() {
        for upper in [false, true] {
            for (from, to) in table(upper) {
                assert!(2 * to.len_utf8() <= 3 * from.len_utf8(), "{from} to {to}");
            }
        }
    }

    #[test]
    fn letters_that_are_several_in_the_other_case_stay_or_have_one_of_their_own() {
        assert_eq!(changed("ÄÖÜß ΑΣ İ ǅ", false), "äöüß ασ i ǆ");
        assert_eq!(changed("äöüß ας ﬁ ᾳ ǅ ÿ ı", true), "ÄÖÜß ΑΣ ﬁ ᾼ Ǆ Ÿ I");
    }
}
