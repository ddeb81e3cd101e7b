//! Where buffers lie in the arena.

use crate::sym::Int;

/// A buffer of known size, needed from step `first` to step `last`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) bytes: u64,
}

impl Block {
    fn meets(&self, o: &Block) -> bool {
        self.first <= o.last && o.first <= self.last
    }
}

/// Comparisons of buffers that a search for a smaller arena may take.
const EFFORT: usize = 1 << 26;

/// Offsets such that buffers needed at the same time are disjoint, and the total.
///
/// The largest are placed first. While that takes more than [`floor`], the buffer that reaches the end is placed before all others
/// and everything anew; the best arrangement counts.
pub(super) fn pack(blocks: &[Block]) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|k| (std::cmp::Reverse(blocks[*k].bytes), blocks[*k].first, *k));
    let least = floor(blocks);
    let mut best = place(blocks, &order);
    let mut last = best.clone();
    for _ in 0..(EFFORT / (blocks.len() * blocks.len()).max(1)).min(1000) {
        if best.1 <= least {
            break;
        }
        let Some(at) = order.iter().rposition(|k| last.0[*k] + blocks[*k].bytes == last.1).filter(|at| *at > 0) else {
            break;
        };
        order[..=at].rotate_right(1);
        last = place(blocks, &order);
        if last.1 < best.1 {
            best = last.clone();
        }
    }
    best
}

/// Places buffers in an order, each into the tightest gap left by those that it meets.
fn place(blocks: &[Block], order: &[usize]) -> (Vec<u64>, u64) {
    let mut offsets = vec![0; blocks.len()];
    let mut placed: Vec<usize> = vec![];
    let mut total = 0;
    for k in order.iter().copied() {
        let b = &blocks[k];
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|j| blocks[**j].bytes > 0 && blocks[**j].meets(b))
            .map(|j| (offsets[*j], offsets[*j] + blocks[*j].bytes))
            .collect();
        taken.sort_unstable();
        let mut best: Option<(u64, u64)> = None;
        let mut free = 0;
        for (start, end) in taken {
            if start > free && start - free >= b.bytes && best.is_none_or(|(gap, _)| start - free < gap) {
                best = Some((start - free, free));
            }
            free = free.max(end);
        }
        offsets[k] = best.map_or(free, |(_, at)| at);
        total = total.max(offsets[k] + b.bytes);
        placed.push(k);
    }
    (offsets, total)
}

/// The most bytes that are needed at one step: no arrangement takes less.
pub(super) fn floor(blocks: &[Block]) -> u64 {
    let last = blocks.iter().map(|b| b.last).filter(|l| *l != usize::MAX).max().unwrap_or(0);
    (0..=last + 1)
        .map(|at| blocks.iter().filter(|b| b.first <= at && at <= b.last).map(|b| b.bytes).sum())
        .max()
        .unwrap_or(0)
}

/// Groups buffers of unknown size such that those of a group are never needed at the same time; a group of the same size
/// is preferred. Members are given by number.
pub(super) fn bins(of: &[(usize, usize, Int)]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..of.len()).collect();
    order.sort_by_key(|k| (of[*k].0, *k));
    let mut bins: Vec<Vec<usize>> = vec![];
    for k in order {
        let (first, _, size) = of[k];
        let free = |b: &Vec<usize>| b.iter().all(|j| of[*j].1 < first);
        let same = bins.iter().position(|b| free(b) && b.iter().any(|j| of[*j].2 == size));
        match same.or_else(|| bins.iter().position(free)) {
            Some(n) => bins[n].push(k),
            None => bins.push(vec![k]),
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_are_needed_together_are_disjoint_and_others_share() {
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for _ in 0..50 {
            let blocks: Vec<Block> = (0..30)
                .map(|_| {
                    let first = next(40) as usize;
                    Block { first, last: first + next(10) as usize, bytes: 64 * (1 + next(20)) }
                })
                .collect();
            let (at, total) = pack(&blocks);
            for i in 0..blocks.len() {
                for j in 0..i {
                    let apart = at[i] + blocks[i].bytes <= at[j] || at[j] + blocks[j].bytes <= at[i];
                    assert!(apart || !blocks[i].meets(&blocks[j]));
                }
            }
            assert!(total >= floor(&blocks));
            assert!(total <= blocks.iter().map(|b| b.bytes).sum());
        }
    }

    #[test]
    fn an_order_other_than_by_size_is_found_where_it_takes_less() {
        // The largest first takes 832.
        let of = |first, last, bytes| Block { first, last, bytes };
        let blocks = [of(6, 7, 384), of(0, 3, 384), of(4, 8, 256), of(2, 4, 64), of(4, 5, 64), of(1, 4, 128)];
        assert_eq!((pack(&blocks).1, floor(&blocks)), (640, 640));
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let chain: Vec<Block> = (0..10).map(|k| Block { first: k, last: k + 1, bytes: 128 }).collect();
        assert_eq!(pack(&chain).1, 256);
    }
}
