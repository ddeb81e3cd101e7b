//! Where virtual registers are live.

use super::inst::{Body, Line, V};
use iced_x86::Register;

/// An interval of positions, both ends in it. Line `i` reads at `2 i` and writes at `2 i + 1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A run of lines that is entered at its first and left at its last.
struct Block {
    first: usize,
    /// One past the last line.
    end: usize,
    next: Vec<usize>,
}

fn blocks(body: &Body) -> Vec<Block> {
    let lines = &body.lines;
    let mut firsts = vec![0];
    for (i, line) in lines.iter().enumerate() {
        match line {
            Line::Label(..) => firsts.push(i),
            Line::Jump(_) | Line::JumpIf(..) | Line::Return(_) => firsts.push(i + 1),
            _ => {}
        }
    }
    firsts.retain(|i| *i < lines.len());
    firsts.sort_unstable();
    firsts.dedup();
    let mut at_label = vec![usize::MAX; body.labels as usize];
    for (n, first) in firsts.iter().enumerate() {
        if let Line::Label(label, _) = lines[*first] {
            at_label[label.0 as usize] = n;
        }
    }
    let mut out = vec![];
    for (n, first) in firsts.iter().enumerate() {
        let end = firsts.get(n + 1).copied().unwrap_or(lines.len());
        let mut next = vec![];
        match lines[end - 1] {
            Line::Jump(label) => next.push(at_label[label.0 as usize]),
            Line::JumpIf(_, label) => next.extend([at_label[label.0 as usize], n + 1]),
            Line::Return(_) => {}
            _ => next.push(n + 1),
        }
        next.retain(|b| *b < firsts.len());
        out.push(Block { first: *first, end, next });
    }
    out
}

/// A set of virtual registers.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn has(&self, v: V) -> bool {
        self.0[v.0 as usize / 64] >> (v.0 % 64) & 1 == 1
    }

    fn add(&mut self, v: V) {
        self.0[v.0 as usize / 64] |= 1 << (v.0 % 64);
    }

    fn remove(&mut self, v: V) {
        self.0[v.0 as usize / 64] &= !(1 << (v.0 % 64));
    }

    fn members(&self) -> impl Iterator<Item = V> + '_ {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(V(word as u32 * 64 + bit))
            })
        })
    }
}

/// The live segments of each virtual register, in order.
pub(super) fn ranges(body: &Body) -> Vec<Vec<Segment>> {
    let blocks = blocks(body);
    let empty = Set(vec![0; body.classes.len().div_ceil(64)]);
    let mut into = vec![empty.clone(); blocks.len()];
    let mut out_of = vec![empty; blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (n, block) in blocks.iter().enumerate().rev() {
            let mut live = out_of[n].clone();
            for next in &block.next {
                live.0.iter_mut().zip(&into[*next].0).for_each(|(a, b)| *a |= b);
            }
            out_of[n] = live.clone();
            for line in body.lines[block.first..block.end].iter().rev() {
                if let Line::Inst(inst) = line {
                    if let Some(v) = inst.def() {
                        live.remove(v);
                    }
                    inst.uses(|v| live.add(v));
                }
            }
            if live != into[n] {
                into[n] = live;
                changed = true;
            }
        }
    }
    // Backwards, so that segments grow at their front; they are turned around at the end.
    let mut out: Vec<Vec<Segment>> = vec![vec![]; body.classes.len()];
    let mut add = |v: V, start: usize, end: usize| {
        let (start, end) = (start as u32, end as u32);
        let list = &mut out[v.0 as usize];
        match list.last_mut() {
            Some(last) if last.start <= end + 1 => last.start = last.start.min(start),
            _ => list.push(Segment { start, end }),
        }
    };
    // Where each register that is live at the moment is read last.
    let mut open = vec![usize::MAX; body.classes.len()];
    for (n, block) in blocks.iter().enumerate().rev() {
        let (top, bottom) = (2 * block.first, 2 * block.end - 1);
        let mut live: Vec<V> = out_of[n].members().collect();
        live.iter().for_each(|v| open[v.0 as usize] = bottom);
        for (i, line) in body.lines[block.first..block.end].iter().enumerate().rev() {
            let at = 2 * (block.first + i);
            let Line::Inst(inst) = line else { continue };
            if let Some(v) = inst.def() {
                let end = std::mem::replace(&mut open[v.0 as usize], usize::MAX);
                // A value that nobody reads still needs a place to be written to.
                add(v, at + 1, if end == usize::MAX { at + 1 } else { end });
            }
            inst.uses(|v| {
                if open[v.0 as usize] == usize::MAX {
                    open[v.0 as usize] = at;
                    live.push(v);
                }
            });
        }
        for v in live {
            let end = std::mem::replace(&mut open[v.0 as usize], usize::MAX);
            if end != usize::MAX {
                debug_assert!(into[n].has(v));
                add(v, top, end);
            }
        }
    }
    out.iter_mut().for_each(|list| list.reverse());
    out
}

/// Where registers are held.
pub(super) fn held(body: &Body) -> Vec<(Segment, &'static [Register])> {
    let mut out = vec![];
    let mut open: Option<(usize, &'static [Register])> = None;
    for (i, line) in body.lines.iter().enumerate() {
        match line {
            Line::Hold(regs) => open = Some((i, regs)),
            Line::Release => {
                if let Some((from, regs)) = open.take() {
                    out.push((Segment { start: 2 * from as u32, end: 2 * i as u32 + 1 }, regs));
                }
            }
            _ => {}
        }
    }
    out
}
