//! Suggestions for misspelt preset names.

use crate::presets::presets;

/// How many names are suggested at most.
const MOST: usize = 4;
/// Longer names than this are compared by their beginning.
const LONGEST: usize = 32;

/// Preset names near to a misspelt one, nearest first. See [`suggestions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Suggestions {
    names: [&'static str; MOST],
    len: usize,
}

impl Suggestions {
    /// The names, nearest first; empty when nothing is near.
    pub fn as_slice(&self) -> &[&'static str] {
        &self.names[..self.len]
    }
}

/// The preset names nearest to `name`; case and separators do not count as differences.
pub fn suggestions(name: &str) -> Suggestions {
    let (wanted, wanted_len) = letters(name);
    let wanted = &wanted[..wanted_len];
    let mut found = Suggestions { names: [""; MOST], len: 0 };
    // One slip for short names, about one in three letters for longer ones.
    let limit = (wanted.len() / 3).clamp(1, 4);
    for distance in 0..=limit {
        for cpu in presets() {
            let (known, known_len) = letters(cpu.name);
            if found.len < MOST && edits(wanted, &known[..known_len]) == distance {
                found.names[found.len] = cpu.name;
                found.len += 1;
            }
        }
    }
    found
}

/// Letters and digits in lower case, without separators.
fn letters(name: &str) -> ([u8; LONGEST], usize) {
    let mut out = [0; LONGEST];
    let mut len = 0;
    for byte in name.bytes().filter(u8::is_ascii_alphanumeric).take(LONGEST) {
        out[len] = byte.to_ascii_lowercase();
        len += 1;
    }
    (out, len)
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from `a` to `b`.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut before = [0; LONGEST + 1];
    let mut last = [0; LONGEST + 1];
    let mut row = [0; LONGEST + 1];
    for (j, cell) in last.iter_mut().enumerate() {
        *cell = j;
    }
    for (i, &x) in a.iter().enumerate() {
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            row[j + 1] = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before = last;
        last = row;
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_target() {
        for (typed, meant) in [
            ("rpi_5", "rpi5"),
            ("RPI4", "rpi4"),
            ("x86-64v3", "x86-64-v3"),
            ("x86_64_v4", "x86-64-v4"),
            ("aarch46", "aarch64"),
            ("cortexa72", "cortex-a72"),
            ("rv64gvc", "rv64gcv"),
            ("sapphirerapid", "sapphirerapids"),
        ] {
            assert_eq!(suggestions(typed).as_slice().first(), Some(&meant), "{typed}");
        }
    }

    #[test]
    fn nonsense_suggests_nothing() {
        assert_eq!(suggestions("quantum-computer").as_slice(), [""; 0]);
        assert_eq!(suggestions("").as_slice(), [""; 0]);
        assert_eq!(suggestions("a name that is far longer than every preset could ever be").as_slice(), [""; 0]);
    }

    #[test]
    fn edit_distance_counts_each_kind() {
        assert_eq!(edits(b"abc", b"abc"), 0);
        assert_eq!(edits(b"abc", b"acb"), 1);
        assert_eq!(edits(b"abc", b"ab"), 1);
        assert_eq!(edits(b"ab", b"abc"), 1);
        assert_eq!(edits(b"abc", b"axc"), 1);
        assert_eq!(edits(b"", b"abc"), 3);
    }
}
