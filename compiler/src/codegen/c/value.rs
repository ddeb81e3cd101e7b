//! Values in pieces.

use super::Style;
use super::helpers::Helpers;
use super::vector::lane_of;
use crate::kernel::ir::Type;

/// A register's value. As many pieces of [`Style::lanes`] lanes as it has whole ones, each a vector; then single lanes.
#[derive(Clone, Debug)]
pub(super) struct Val {
    pub(super) ty: Type,
    /// Names or constants, which may be written wherever an operand may be.
    pub(super) pieces: Vec<String>,
    /// The bits of a constant, the same in every lane.
    pub(super) imm: Option<u64>,
}

/// Lanes of each piece of a value with `lanes` lanes.
pub(super) fn chunks(style: Style, lanes: u16) -> Vec<u16> {
    let whole = if style.lanes > 1 { lanes / style.lanes } else { 0 };
    let mut out = vec![style.lanes; whole.into()];
    out.resize(out.len() + usize::from(lanes - whole * style.lanes), 1);
    out
}

impl Val {
    /// One lane as a scalar expression.
    pub(super) fn lane(&self, style: Style, lane: u16) -> String {
        let whole = if style.lanes > 1 { self.ty.lanes / style.lanes } else { 0 };
        let vectors = whole * style.lanes;
        match lane < vectors {
            true => lane_of(self.ty.elem, &self.pieces[usize::from(lane / style.lanes)], lane % style.lanes),
            false => self.pieces[usize::from(whole + lane - vectors)].clone(),
        }
    }
}

/// Pieces of a value of type `ty` with the given lanes.
pub(super) fn join(h: &mut Helpers, style: Style, ty: Type, lanes: &[String]) -> Vec<String> {
    let mut at = 0;
    let mut out = vec![];
    for n in chunks(style, ty.lanes) {
        let part = &lanes[at..at + usize::from(n)];
        out.push(match part {
            [one] => one.clone(),
            _ => format!("{}({})", h.make(ty.elem, n), part.join(", ")),
        });
        at += usize::from(n);
    }
    out
}
