//! BLAKE3 (hash mode, 32 bytes of output) in little code: loops where the fast ones are written out.
//!
//! The input is cut into chunks of 1024 bytes, each a chain of compressions over blocks of 64. Chunks are the leaves of a
//! binary tree whose left subtrees are complete; `stack` holds the subtrees that wait for their right neighbours, largest
//! first. The last compression, of whatever node turns out to be the root, has a flag of its own, which is why the last
//! block stays in `block` until there are bytes behind it.

use crate::Digest;

const CHUNK: usize = 1024;
const BLOCK: usize = 64;
/// Levels of a tree over all bytes that an address can name.
const DEPTH: usize = (usize::BITS - CHUNK.trailing_zeros()) as usize;

const START: u32 = 1;
const END: u32 = 2;
const PARENT: u32 = 4;
const ROOT: u32 = 8;

const IV: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
/// Where the words of a block come from in the next round.
const PERMUTATION: [u8; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
/// Columns, then diagonals, of the state as a square.
const MIXED: [[u8; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

type Words = [u32; 8];

#[derive(Clone, Debug)]
pub(super) struct Hasher {
    /// Of the chunk so far, without `block`.
    chain: Words,
    block: [u8; BLOCK],
    /// Bytes in `block`.
    filled: usize,
    /// Whether `block` is the first of its chunk.
    first: bool,
    /// Bytes before `block`.
    before: u64,
    stack: [Words; DEPTH],
    height: usize,
}

impl Default for Hasher {
    fn default() -> Hasher {
        Hasher { chain: IV, block: [0; BLOCK], filled: 0, first: true, before: 0, stack: [IV; DEPTH], height: 0 }
    }
}

impl Hasher {
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled == BLOCK {
                self.next_block();
            }
            let take = bytes.len().min(BLOCK - self.filled);
            let Some((head, rest)) = bytes.split_at_checked(take) else { return };
            for (to, from) in self.block.iter_mut().skip(self.filled).zip(head) {
                *to = *from;
            }
            self.filled += take;
            bytes = rest;
        }
    }

    /// Takes the full block into the chain, and a full chunk into the tree. More bytes follow.
    fn next_block(&mut self) {
        self.chain = self.compress_block(0);
        self.before += BLOCK as u64;
        self.filled = 0;
        self.first = false;
        if !self.before.is_multiple_of(CHUNK as u64) {
            return;
        }
        let mut done = core::mem::replace(&mut self.chain, IV);
        self.first = true;
        // A subtree is complete for each 1 that became 0 in the number of chunks.
        let chunks = self.before / CHUNK as u64;
        for _ in 0..chunks.trailing_zeros() {
            done = parent(self.pop(), done, 0);
        }
        if let Some(top) = self.stack.get_mut(self.height) {
            *top = done;
            self.height += 1;
        }
    }

    fn pop(&mut self) -> Words {
        self.height = self.height.saturating_sub(1);
        self.stack.get(self.height).copied().unwrap_or_default()
    }

    /// Compresses the block of a chunk.
    fn compress_block(&self, root: u32) -> Words {
        let start = if self.first { START } else { 0 };
        // The last block of a chunk is full in the middle of the input, and whatever it is at the end.
        let end = if root != 0 || (self.before + BLOCK as u64).is_multiple_of(CHUNK as u64) { END } else { 0 };
        let mut block = [0; 16];
        for (at, byte) in self.block.iter().enumerate().take(self.filled) {
            if let Some(word) = block.get_mut(at / 4) {
                *word |= u32::from(*byte) << (8 * (at % 4));
            }
        }
        compress(&self.chain, &mut block, self.before / CHUNK as u64, self.filled as u32, start | end | (root & ROOT))
    }

    pub(super) fn finish(&self) -> Digest {
        let mut left = self.clone();
        let mut done = self.compress_block(if self.height == 0 { ROOT } else { END });
        while left.height > 0 {
            let other = left.pop();
            done = parent(other, done, if left.height == 0 { ROOT } else { 0 });
        }
        let mut digest = [0; 32];
        for (to, word) in digest.chunks_mut(4).zip(done) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }
}

fn parent(left: Words, right: Words, root: u32) -> Words {
    let mut block = [0; 16];
    for (to, from) in block.iter_mut().zip(left.iter().chain(&right)) {
        *to = *from;
    }
    compress(&IV, &mut block, 0, BLOCK as u32, PARENT | root)
}

fn compress(chain: &Words, block: &mut [u32; 16], counter: u64, bytes: u32, flags: u32) -> Words {
    let [a, b, c, d, e, f, g, h] = *chain;
    let [i, j, k, l, ..] = IV;
    let mut s = [a, b, c, d, e, f, g, h, i, j, k, l, counter as u32, (counter >> 32) as u32, bytes, flags];
    for round in 0..7 {
        if round > 0 {
            let old = *block;
            for (to, from) in block.iter_mut().zip(PERMUTATION) {
                *to = old[usize::from(from & 15)];
            }
        }
        for (at, words) in MIXED.iter().zip(block.chunks_exact(2)) {
            let [a, b, c, d] = *at;
            // Masked where they are used: the compiler sees that none is out of range.
            let [a, b, c, d] = [(a & 15) as usize, (b & 15) as usize, (c & 15) as usize, (d & 15) as usize];
            let &[x, y] = words else { continue };
            for (m, [r, q]) in [(x, [16, 12]), (y, [8, 7])] {
                s[a] = s[a].wrapping_add(s[b]).wrapping_add(m);
                s[d] = (s[d] ^ s[a]).rotate_right(r);
                s[c] = s[c].wrapping_add(s[d]);
                s[b] = (s[b] ^ s[c]).rotate_right(q);
            }
        }
    }
    let mut out = [0; 8];
    for (i, word) in out.iter_mut().enumerate() {
        *word = s[i & 7] ^ s[8 + (i & 7)];
    }
    out
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn digests_are_those_of_the_fast_hasher() {
        let bytes: std::vec::Vec<u8> = (0..70_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let near = |n: usize| n.saturating_sub(1)..n + 2;
        let lengths = [0, 64, 128, 1024, 2048, 3072, 4096, 5120, 7168, 8192, 16384, 31744, 65536, 69_998];
        for len in lengths.into_iter().flat_map(near) {
            let data = &bytes[..len];
            for parts in [1, 63, 64, 1000, 70_000] {
                let mut hasher = Hasher::default();
                data.chunks(parts).for_each(|c| hasher.update(c));
                assert_eq!(hasher.finish(), *blake3::hash(data).as_bytes(), "{len} bytes in parts of {parts}");
            }
        }
    }
}
