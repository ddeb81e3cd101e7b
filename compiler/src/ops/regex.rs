//! Regular expressions as tables: deterministic automata over bytes, made when packing.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};
use regex_syntax::utf8::Utf8Sequences;
use std::collections::{BTreeSet, HashMap};

/// Most states of the automaton before and after it is made deterministic.
const MOST: [usize; 2] = [20_000, 4096];

/// Tells which strings match as a whole. State 0 is the first.
pub(super) struct Automaton {
    /// For each state and byte the next state.
    pub(super) next: Vec<i32>,
    /// Which states a match may end in.
    pub(super) accepting: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq)]
enum Edge {
    Free(usize),
    /// Only before the first byte.
    AtStart(usize),
    /// Only behind the last.
    AtEnd(usize),
    /// Only between a letter, digit or underscore and something else (or, if `false`, not there).
    AtWord(bool, usize),
    Bytes(u8, u8, usize),
}

/// Where in a string an edge that takes no byte is followed.
#[derive(Clone, Copy)]
struct Place {
    start: bool,
    end: bool,
    /// Between a byte of a word and one that is none.
    word: bool,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// An automaton whose edges may be taken at will.
#[derive(Default)]
struct Free {
    edges: Vec<Vec<Edge>>,
}

impl Free {
    fn state(&mut self) -> Result<usize, String> {
        if self.edges.len() >= MOST[0] {
            return Err("the expression is too large".into());
        }
        self.edges.push(vec![]);
        Ok(self.edges.len() - 1)
    }

    /// Adds `hir` behind the state `from`; gives the state behind it.
    fn add(&mut self, hir: &Hir, from: usize) -> Result<usize, String> {
        match hir.kind() {
            HirKind::Empty => Ok(from),
            HirKind::Literal(bytes) => bytes.0.iter().try_fold(from, |at, b| {
                let to = self.state()?;
                self.edges[at].push(Edge::Bytes(*b, *b, to));
                Ok(to)
            }),
            HirKind::Class(class) => self.class(class, from),
            HirKind::Look(look) => {
                let to = self.state()?;
                let edge = match look {
                    Look::Start => Edge::AtStart(to),
                    Look::End => Edge::AtEnd(to),
                    Look::WordAscii => Edge::AtWord(true, to),
                    Look::WordAsciiNegate => Edge::AtWord(false, to),
                    other => return Err(format!("the condition {other:?} is not supported")),
                };
                self.edges[from].push(edge);
                Ok(to)
            }
            HirKind::Capture(capture) => self.add(&capture.sub, from),
            HirKind::Concat(parts) => parts.iter().try_fold(from, |at, part| self.add(part, at)),
            HirKind::Alternation(parts) => {
                let to = self.state()?;
                for part in parts {
                    let end = self.add(part, from)?;
                    self.edges[end].push(Edge::Free(to));
                }
                Ok(to)
            }
            HirKind::Repetition(r) => {
                let mut at = from;
                for _ in 0..r.min {
                    at = self.add(&r.sub, at)?;
                }
                let Some(most) = r.max else {
                    // A state of its own, so that going round leads nowhere else.
                    let again = self.state()?;
                    self.edges[at].push(Edge::Free(again));
                    let end = self.add(&r.sub, again)?;
                    self.edges[end].push(Edge::Free(again));
                    let to = self.state()?;
                    self.edges[again].push(Edge::Free(to));
                    return Ok(to);
                };
                let to = self.state()?;
                self.edges[at].push(Edge::Free(to));
                for _ in r.min..most {
                    at = self.add(&r.sub, at)?;
                    self.edges[at].push(Edge::Free(to));
                }
                Ok(to)
            }
        }
    }

    fn class(&mut self, class: &Class, from: usize) -> Result<usize, String> {
        let to = self.state()?;
        match class {
            Class::Bytes(c) => {
                for r in c.ranges() {
                    self.edges[from].push(Edge::Bytes(r.start(), r.end(), to));
                }
            }
            Class::Unicode(c) => {
                for sequence in c.ranges().iter().flat_map(|r| Utf8Sequences::new(r.start(), r.end())) {
                    let ranges = sequence.as_slice();
                    let mut at = from;
                    for (k, r) in ranges.iter().enumerate() {
                        let next = if k + 1 == ranges.len() { to } else { self.state()? };
                        self.edges[at].push(Edge::Bytes(r.start, r.end, next));
                        at = next;
                    }
                }
            }
        }
        Ok(to)
    }

    /// All states that can be reached without a byte at such a place.
    fn closed(&self, states: &BTreeSet<usize>, place: Place) -> BTreeSet<usize> {
        let mut all = states.clone();
        let mut open: Vec<usize> = states.iter().copied().collect();
        while let Some(s) = open.pop() {
            for edge in &self.edges[s] {
                let to = match *edge {
                    Edge::Free(to) => to,
                    Edge::AtStart(to) if place.start => to,
                    Edge::AtEnd(to) if place.end => to,
                    Edge::AtWord(is, to) if place.word == is => to,
                    _ => continue,
                };
                if all.insert(to) {
                    open.push(to);
                }
            }
        }
        all
    }
}

/// The pattern with what RE2 reads otherwise than the parser written out: classes by letters are those of ASCII, and within
/// brackets an opening bracket and doubled signs stand for themselves.
fn rewritten(pattern: &str) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut inside = false;
    let mut at_start = false;
    while let Some(c) = chars.next() {
        let first = std::mem::take(&mut at_start);
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str(r"[\t\n\f\r ]"),
                Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                Some(c @ ('b' | 'B')) if !inside => out.push_str(if c == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" }),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            '[' if !inside => {
                (inside, at_start) = (true, true);
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
            }
            '[' if chars.peek() == Some(&':') => {
                // A named class, up to its own bracket.
                out.push('[');
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' => out.push_str("\\["),
            ']' if inside && first => out.push_str("\\]"),
            ']' => {
                inside = false;
                out.push(']');
            }
            '&' | '~' if inside => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

impl Automaton {
    /// For a pattern in the syntax of RE2.
    ///
    /// # Errors
    /// What is not supported, or wrong with the pattern.
    pub(super) fn of(pattern: &str) -> Result<Automaton, String> {
        let short = |e: String| e.lines().last().unwrap_or_default().trim_start_matches("error: ").to_string();
        let hir = ParserBuilder::new().build().parse(&rewritten(pattern)).map_err(|e| short(e.to_string()))?;
        let mut free = Free::default();
        let first = free.state()?;
        let last = free.add(&hir, first)?;

        // What is between bytes is decided when the next byte is known: a state says what was reached by the last one, and
        // whether that was of a word.
        let start = (BTreeSet::from([first]), false);
        let mut known: HashMap<(BTreeSet<usize>, bool), i32> = [(start.clone(), 0)].into();
        let mut sets = vec![start];
        let (mut next, mut accepting) = (vec![], vec![]);
        let asks = free.edges.iter().flatten().any(|e| matches!(e, Edge::AtWord(..)));
        while let Some((set, word)) = sets.get(accepting.len()).cloned() {
            let place = |next: bool, end| Place { start: accepting.is_empty(), end, word: word != next };
            let (plain, letter, end) = (place(false, false), place(true, false), place(false, true));
            let closed = [plain, letter].map(|p| free.closed(&set, p));
            accepting.push(free.closed(&set, end).contains(&last));
            let edges = closed.map(|set| -> Vec<(u8, u8, usize)> {
                set.iter().flat_map(|s| &free.edges[*s]).filter_map(bytes_of).collect()
            });
            // Bytes between two bounds lead to the same states.
            let mut bounds: BTreeSet<usize> = [0, 256].into();
            bounds.extend((1..256).filter(|b| asks && is_word(*b as u8) != is_word((b - 1) as u8)));
            let ends = edges.iter().flatten().flat_map(|(lo, hi, _)| [usize::from(*lo), usize::from(*hi) + 1]);
            bounds.extend(ends);
            let bounds: Vec<usize> = bounds.into_iter().collect();
            for pair in bounds.windows(2) {
                let word = asks && is_word(pair[0] as u8);
                let hit = |(lo, hi, _): &&(u8, u8, usize)| (usize::from(*lo)..=usize::from(*hi)).contains(&pair[0]);
                let to: BTreeSet<usize> = edges[usize::from(word)].iter().filter(hit).map(|e| e.2).collect();
                let to = (to, word);
                let number = match known.get(&to) {
                    Some(n) => *n,
                    None if sets.len() >= MOST[1] => return Err("the expression has too many states".into()),
                    None => {
                        let n = sets.len() as i32;
                        known.insert(to.clone(), n);
                        sets.push(to);
                        n
                    }
                };
                next.extend(std::iter::repeat_n(number, pair[1] - pair[0]));
            }
        }
        Ok(Automaton { next, accepting })
    }
}

fn bytes_of(edge: &Edge) -> Option<(u8, u8, usize)> {
    match *edge {
        Edge::Bytes(lo, hi, to) => Some((lo, hi, to)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Automaton;

    fn matches(pattern: &str, text: &str) -> bool {
        let a = Automaton::of(pattern).expect("legal");
        let end = text.bytes().fold(0, |s, b| a.next[s as usize * 256 + usize::from(b)]);
        a.accepting[end as usize]
    }

    #[test]
    fn a_match_is_of_the_whole_string() {
        for (pattern, text, is) in [
            ("", "", true),
            ("", "a", false),
            ("a*b", "aaab", true),
            ("a*b", "aaabc", false),
            ("a|bc", "bc", true),
            ("a|bc", "ac", false),
            ("(ab){2,3}", "abababab", false),
            ("(ab){2,3}", "abab", true),
            ("(a|b)*a", "abba", true),
            ("(a?b?)*", "ba", true),
            (r"\w[\w.\-_]+@\d+", "a.b-c_d@12", true),
            (r"\w+", "ä", false),
            ("^ab$", "ab", true),
            ("a^b", "ab", false),
            ("x.z", "xéz", true),
            ("[^a]", "é", true),
            ("[[:digit:]x[]+", "1[x", true),
            ("[&&a]+", "&a&", true),
            ("[]a]+", "]a", true),
            ("(?i)straße", "STRAße", true),
            (r"www\.[\w.-]+\.\bcom\b", "www.a-b.com", true),
            (r"a\b.c", "a-c", true),
            (r"a\b.c", "abc", false),
            (r"a\B.c", "abc", true),
            (r"\b", "", false),
            (r"\ba\b", "a", true),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} on {text}");
        }
    }

    #[test]
    fn what_is_not_supported_is_said() {
        for pattern in ["(a", "(?m)^a", "((a{99}){99}){99}"] {
            assert!(Automaton::of(pattern).is_err(), "{pattern}");
        }
    }
}
