//! Leaves out what is computed and not used, of which C compilers warn: parts of values, and what a target needs less of.

use std::collections::BTreeSet;

/// A line of a function.
pub(super) struct Line {
    pub(super) text: String,
    /// The register or variable that it gives a value, and does nothing else.
    pub(super) sets: Option<String>,
}

/// Identifiers of a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// Names that a line reads.
fn reads(line: &Line) -> impl Iterator<Item = &str> {
    let value = match &line.sets {
        Some(_) => line.text.split_once(" = ").map_or("", |(_, value)| value),
        None => &line.text,
    };
    names(value)
}

/// Leaves out lines that set what no line reads.
pub(super) fn drop(lines: &mut Vec<Line>) {
    loop {
        // Registers are read after they are set, variables perhaps before, in a loop: these take another pass.
        let mut used: BTreeSet<String> = BTreeSet::new();
        let mut keep = vec![true; lines.len()];
        let all: BTreeSet<&str> = lines.iter().flat_map(reads).collect();
        for (line, keep) in lines.iter().zip(&mut keep).rev() {
            *keep = line.sets.as_ref().is_none_or(|name| {
                let variable = name.starts_with('v');
                if variable { all.contains(name.as_str()) } else { used.contains(name) }
            });
            if *keep {
                used.extend(reads(line).map(str::to_owned));
            }
        }
        let before = lines.len();
        let mut kept = keep.into_iter();
        lines.retain(|_| kept.next().unwrap_or(true));
        if lines.len() == before {
            return;
        }
    }
}

/// Those of `params` that no line reads.
pub(super) fn missing(lines: &[Line], params: Vec<String>) -> impl Iterator<Item = String> {
    let read: BTreeSet<String> = lines.iter().flat_map(reads).map(str::to_owned).collect();
    params.into_iter().filter(move |name| !read.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(sets: Option<&str>, text: &str) -> Line {
        Line { text: text.into(), sets: sets.map(str::to_owned) }
    }

    #[test]
    fn chains_that_end_nowhere_are_left_out() {
        let mut lines = vec![
            line(Some("b0"), "const gm_f32 *restrict const b0 = (const gm_f32 *)p0;"),
            line(Some("v0"), "float v0 = 0;"),
            line(Some("v1"), "float v1 = 0;"),
            line(None, "for (int64_t r1 = 0; r1 < s0; r1++) {"),
            line(Some("r2"), "    const float r2 = b0[r1];"),
            line(Some("r3"), "    const float r3 = v1 + r2;"),
            line(Some("v1"), "    v1 = r3;"),
            line(Some("r4"), "    const float r4 = v0;"),
            line(Some("v0"), "    v0 = 1.0f;"),
            line(None, "    b1[r1] = r4;"),
            line(None, "}"),
        ];
        drop(&mut lines);
        let text: Vec<&str> = lines.iter().map(|l| l.text.trim()).collect();
        // A variable that only makes itself is kept: compilers do not warn of it.
        assert!(text.contains(&"v1 = r3;"));
        lines.retain(|l| l.text.trim() != "const float r3 = v1 + r2;");
        lines.retain(|l| l.text.trim() != "v1 = r3;");
        drop(&mut lines);
        let text: Vec<&str> = lines.iter().map(|l| l.text.trim()).collect();
        assert_eq!(
            text,
            [
                "float v0 = 0;",
                "for (int64_t r1 = 0; r1 < s0; r1++) {",
                "const float r4 = v0;",
                "v0 = 1.0f;",
                "b1[r1] = r4;",
                "}"
            ]
        );
        let params = vec!["p0".to_owned(), "s0".to_owned()];
        assert_eq!(missing(&lines, params).collect::<Vec<_>>(), ["p0"]);
    }
}
