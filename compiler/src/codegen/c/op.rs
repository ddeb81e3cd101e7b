//! Operations as C expressions, in pieces.

use super::helpers::{Helpers, cmp_sign};
use super::literal::{modular_type, scalar_type};
use super::narrow::Hold;
use super::stmt::{Fx, Res};
use super::value::{Val, chunks, join};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, Horizontal, Op, Reg, Type, UnOp};

impl Helpers {
    /// A one-operand operation on a scalar.
    fn scalar_un(&mut self, op: UnOp, elem: DType, x: &str) -> String {
        let (ty, u) = (scalar_type(elem), modular_type(elem));
        match op {
            UnOp::Neg if elem.is_float() => format!("-{x}"),
            UnOp::Neg => format!("({ty})(0u - ({u}){x})"),
            UnOp::Not if elem == DType::Bool => format!("!{x}"),
            UnOp::Not => format!("({ty})~{x}"),
            UnOp::Abs if !elem.is_signed() && elem.is_int() => x.to_owned(),
            _ => format!("{}({x})", self.un(op, elem)),
        }
    }

    /// A two-operand operation on scalars. `known`: the bits of the right operand, if it is a constant.
    fn scalar_bin(&mut self, op: BinOp, elem: DType, x: &str, y: &str, known: Option<u64>) -> String {
        let (ty, u) = (scalar_type(elem), modular_type(elem));
        let sign = match op {
            BinOp::Add => '+',
            BinOp::Sub => '-',
            BinOp::Mul => '*',
            BinOp::Div => '/',
            BinOp::Rem => '%',
            BinOp::And => '&',
            BinOp::Or => '|',
            BinOp::Xor => '^',
            BinOp::Shl | BinOp::Shr | BinOp::Min | BinOp::Max => ' ',
        };
        let bits = 8 * elem.size() as u64;
        let minus_one = u64::MAX >> (64 - bits);
        match (op, known) {
            (BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div, _) if elem.is_float() => format!("{x} {sign} {y}"),
            (BinOp::Add | BinOp::Sub | BinOp::Mul, _) => format!("({ty})(({u}){x} {sign} ({u}){y})"),
            (BinOp::And | BinOp::Or | BinOp::Xor, _) => format!("({ty})({x} {sign} {y})"),
            (BinOp::Div | BinOp::Rem, Some(n)) if elem.is_int() && n != 0 && !(elem.is_signed() && n == minus_one) => {
                format!("({ty})({x} {sign} {y})")
            }
            (BinOp::Shl, Some(n)) if n < bits => format!("({ty})(({u}){x} << {n})"),
            (BinOp::Shr, Some(n)) if n < bits => format!("({ty})(({ty}){x} >> {n})"),
            _ => format!("{}({x}, {y})", self.bin(op, elem)),
        }
    }

    fn scalar_cmp(&mut self, op: Cmp, elem: DType, x: &str, y: &str) -> String {
        match elem {
            DType::I32 | DType::I64 | DType::F32 | DType::F64 => format!("{x} {} {y}", cmp_sign(op)),
            _ => format!("{}({x}, {y})", self.cmp(op, elem)),
        }
    }
}

impl Fx<'_> {
    /// A register's value in pieces, each an expression.
    pub(super) fn op(&mut self, reg: Reg, op: &Op) -> Res<Val> {
        let ty = self.kernel.regs[reg.0 as usize];
        let mut val = Val { ty, pieces: vec![], imm: None };
        match op {
            Op::Const(imm, _) => {
                val.imm = Some(imm.bits);
                let one = self.h.literal(imm.elem, imm.bits);
                val.pieces = self.copies(ty, &one);
            }
            Op::Scalar(i) => val.pieces.push(format!("s{i}")),
            Op::TileLo => val.pieces.push("lo".to_owned()),
            Op::TileHi => val.pieces.push("hi".to_owned()),
            Op::Get(var) => val.pieces = self.var_names(*var),
            Op::Un(op, a) => {
                if let (Some(narrow), UnOp::Neg) = (self.narrow(reg), op) {
                    let x = self.scalar(*a)?;
                    val.pieces.push(match (narrow, self.is_small(*a)) {
                        (Hold::Small, true) => format!("-{x}"),
                        (Hold::Small, false) => format!("(int32_t)(0u - (uint32_t){x})"),
                        _ => format!("0u - (uint32_t){x}"),
                    });
                    return Ok(val);
                }
                let each = self.h.scalar_un(*op, ty.elem, "x");
                val.pieces = self.map(&[*a], |h, n, args| match n {
                    1 => h.scalar_un(*op, ty.elem, &args[0]),
                    _ => format!("{}({})", h.vector_un(*op, ty.elem, n, &each), args[0]),
                })?;
            }
            Op::Bin(op, a, b) => val.pieces = self.bin(reg, *op, *a, *b)?,
            Op::Fma(a, b, c) => {
                val.pieces = self.map(&[*a, *b, *c], |h, n, args| {
                    let name = if n == 1 { h.fma(ty.elem) } else { h.vector_fma(ty.elem, n) };
                    format!("{name}({})", args.join(", "))
                })?;
            }
            Op::Dot(dot, a, b, c) => val.pieces = self.dot(ty, *dot, [*a, *b, *c])?,
            Op::Words { buf, index, disp, .. } => val.pieces = self.words(ty, *buf, *index, *disp)?,
            Op::Cmp(op, a, b) => {
                let elem = self.ty(*a).elem;
                let each = self.h.scalar_cmp(*op, elem, "x", "y");
                val.pieces = self.map(&[*a, *b], |h, n, args| match n {
                    1 => h.scalar_cmp(*op, elem, &args[0], &args[1]),
                    _ => format!("{}({}, {})", h.vector_cmp(*op, elem, n, &each), args[0], args[1]),
                })?;
            }
            Op::Select(mask, a, b) if self.narrow(reg) == Some(Hold::Low) => {
                let (mask, x, y) = (self.scalar(*mask)?, self.scalar(*a)?, self.scalar(*b)?);
                val.pieces.push(format!("{mask} ? (uint32_t){x} : (uint32_t){y}"));
            }
            Op::Select(mask, a, b) => {
                val.pieces = self.map(&[*mask, *a, *b], |h, n, args| match n {
                    1 => format!("{} ? {} : {}", args[0], args[1], args[2]),
                    _ => format!("{}({})", h.vector_select(ty.elem, n), args.join(", ")),
                })?;
            }
            Op::Cast(to, a) => {
                let from = self.ty(*a).elem;
                let each = self.h.cast(*to, from, "x");
                val.pieces = self.map(&[*a], |h, n, args| match n {
                    1 => h.cast(*to, from, &args[0]),
                    _ => {
                        let what = format!("{to}_of");
                        format!("{}({})", h.vector_cast(&what, ty.elem, from, n, &each), args[0])
                    }
                })?;
            }
            Op::Bitcast(to, a) => {
                let from = self.ty(*a).elem;
                let each = self.h.bitcast(*to, from, "x");
                val.pieces = self.map(&[*a], |h, n, args| match n {
                    1 => h.bitcast(*to, from, &args[0]),
                    _ => format!("{}({})", h.vector_cast("bits", ty.elem, from, n, &each), args[0]),
                })?;
            }
            Op::Splat(a, _) => {
                let x = self.scalar(*a)?;
                val.pieces = self.copies(ty, &x);
            }
            Op::Extract(a, lane) => val.pieces.push(self.val(*a)?.lane(self.style, *lane)),
            Op::Insert(a, lane, value) => {
                let mut lanes = self.lanes(*a)?;
                lanes[usize::from(*lane)] = self.scalar(*value)?;
                val.pieces = join(self.h, self.style, ty, &lanes);
            }
            Op::Shuffle(a, b, picks) => {
                let mut from = self.lanes(*a)?;
                from.extend(self.lanes(*b)?);
                let lanes: Vec<String> = picks.iter().map(|pick| from[usize::from(*pick)].clone()).collect();
                val.pieces = join(self.h, self.style, ty, &lanes);
            }
            Op::Iota(_, lanes) => {
                let lanes: Vec<String> = (0..*lanes).map(|i| i.to_string()).collect();
                val.pieces = join(self.h, self.style, ty, &lanes);
            }
            Op::Horizontal(op, a) => val.pieces.push(self.horizontal(*op, *a)?),
            Op::Load { buf, index, disp, lanes } => {
                let stored = self.kernel.bufs[buf.0 as usize].dtype;
                let mut at = *disp;
                for n in chunks(self.style, *lanes) {
                    let place = self.place(*index, at)?;
                    let h = &mut *self.h;
                    val.pieces.push(match n {
                        1 => h.loaded(stored, &format!("b{}[{place}]", buf.0)),
                        _ => format!("{}(b{} + ({place}))", h.load(stored, n), buf.0),
                    });
                    at = at.wrapping_add(i64::from(n));
                }
            }
        }
        Ok(val)
    }

    fn bin(&mut self, reg: Reg, op: BinOp, a: Reg, b: Reg) -> Res<Vec<String>> {
        let elem = self.ty(a).elem;
        let known = self.val(b)?.imm;
        if let Some(narrow) = self.narrow(reg) {
            let small = self.is_small(a) && self.is_small(b);
            let (x, y) = (self.scalar(a)?, self.scalar(b)?);
            let sign = match op {
                BinOp::Add => '+',
                BinOp::Sub => '-',
                BinOp::Mul => '*',
                _ => ' ',
            };
            let h = &mut *self.h;
            return Ok(vec![match (op, narrow) {
                // The result fits, so that nothing overflows.
                (BinOp::Add | BinOp::Sub | BinOp::Mul, Hold::Small) if small => format!("{x} {sign} {y}"),
                (BinOp::Add | BinOp::Sub | BinOp::Mul, Hold::Small) => {
                    format!("(int32_t)((uint32_t){x} {sign} (uint32_t){y})")
                }
                (BinOp::Add | BinOp::Sub | BinOp::Mul, _) => format!("(uint32_t){x} {sign} (uint32_t){y}"),
                (_, Hold::Small) if small => {
                    // Constants that differ in their upper halves only are sign extensions.
                    h.scalar_bin(op, DType::I32, &x, &y, known.map(|bits| bits & 0xffff_ffff))
                }
                _ => format!("({}){}", narrow_type(narrow), parenthesised(h.scalar_bin(op, elem, &x, &y, known))),
            }]);
        }
        let bits = 8 * elem.size() as u64;
        if let (BinOp::Shl | BinOp::Shr, Some(by)) = (op, known.filter(|by| *by < bits)) {
            let each = self.h.scalar_bin(op, elem, "x", "y", known);
            return self.map(&[a], |h, n, args| match n {
                1 => h.scalar_bin(op, elem, &args[0], "", known),
                _ => format!("{}({})", h.vector_shift(op, elem, n, by, &each), args[0]),
            });
        }
        let each = self.h.scalar_bin(op, elem, "x", "y", None);
        self.map(&[a, b], |h, n, args| match n {
            1 => h.scalar_bin(op, elem, &args[0], &args[1], known),
            _ => format!("{}({}, {})", h.vector_bin(op, elem, n, &each), args[0], args[1]),
        })
    }

    /// Applies `f` to each piece of the operands, with its number of lanes.
    fn map(&mut self, args: &[Reg], f: impl Fn(&mut Helpers, u16, &[String]) -> String) -> Res<Vec<String>> {
        let vals = args.iter().map(|reg| self.val(*reg)).collect::<Res<Vec<Val>>>()?;
        let lanes = vals.first().ok_or("an operation without operands")?.ty.lanes;
        let mut out = vec![];
        for (i, n) in chunks(self.style, lanes).into_iter().enumerate() {
            let args: Vec<String> = vals.iter().map(|val| val.pieces[i].clone()).collect();
            out.push(f(self.h, n, &args));
        }
        Ok(out)
    }

    /// A scalar in all lanes.
    fn copies(&mut self, ty: Type, x: &str) -> Vec<String> {
        let h = &mut *self.h;
        let piece = |n| if n == 1 { x.to_owned() } else { format!("{}({x})", h.splat(ty.elem, n)) };
        chunks(self.style, ty.lanes).into_iter().map(piece).collect()
    }

    pub(super) fn lanes(&self, reg: Reg) -> Res<Vec<String>> {
        let val = self.val(reg)?;
        Ok((0..val.ty.lanes).map(|lane| val.lane(self.style, lane)).collect())
    }

    /// The reduction as a tree of the interpreter's shape: whole vectors as long as halves are such, then lanes.
    fn horizontal(&mut self, op: Horizontal, a: Reg) -> Res<String> {
        let op = match op {
            Horizontal::Add => BinOp::Add,
            Horizontal::Mul => BinOp::Mul,
            Horizontal::Min => BinOp::Min,
            Horizontal::Max => BinOp::Max,
        };
        let mut val = self.val(a)?;
        let (elem, style) = (val.ty.elem, self.style);
        let h = &mut *self.h;
        let each = h.scalar_bin(op, elem, "x", "y", None);
        while style.lanes > 1 && val.ty.lanes % (2 * style.lanes) == 0 {
            let name = h.vector_bin(op, elem, style.lanes, &each);
            let half = val.pieces.len() / 2;
            let (low, high) = val.pieces.split_at(half);
            val.pieces = low.iter().zip(high).map(|(x, y)| format!("{name}({x}, {y})")).collect();
            val.ty.lanes /= 2;
        }
        // Lanes of what is more than a name are asked for several times.
        for (i, n) in chunks(style, val.ty.lanes).into_iter().enumerate() {
            if n > 1 && val.pieces[i].contains('(') {
                val.pieces[i] = {
                    let value = val.pieces[i].clone();
                    self.temporary(elem, n, &value)
                };
            }
        }
        let lanes: Vec<String> = (0..val.ty.lanes).map(|lane| val.lane(style, lane)).collect();
        let h = &mut *self.h;
        Ok(tree(&lanes, &mut |x, y| parenthesised(h.scalar_bin(op, elem, x, y, None))))
    }
}

/// Lanes with those half way on, until one is left; an odd last one comes in at the end.
fn tree(lanes: &[String], f: &mut dyn FnMut(&str, &str) -> String) -> String {
    let half = lanes.len() / 2;
    if half == 0 {
        return lanes.first().cloned().unwrap_or_default();
    }
    let pairs: Vec<String> = (0..half).map(|i| f(&lanes[i], &lanes[half + i])).collect();
    let most = tree(&pairs, f);
    if lanes.len() % 2 == 1 { f(&most, &lanes[2 * half]) } else { most }
}

pub(super) fn parenthesised(text: String) -> String {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if plain { text } else { format!("({text})") }
}

pub(super) fn narrow_type(hold: Hold) -> &'static str {
    if hold == Hold::Small { "int32_t" } else { "uint32_t" }
}
