//! Identifiers out of the names of files and tensors.

use std::collections::BTreeSet;

/// Letters, digits and underscores, the first no digit: an identifier in C and Rust, unless it is a word of theirs.
fn identifier(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let c = if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        if c != '_' || !out.ends_with('_') {
            out.push(c);
        }
    }
    let out = out.trim_matches('_');
    match out.chars().next() {
        None => "x".to_owned(),
        Some(c) if c.is_ascii_digit() => format!("m{out}"),
        Some(_) => out.to_owned(),
    }
}

/// What the names of a model begin with, out of the name of a file.
pub fn prefix(text: &str) -> String {
    identifier(text)
}

/// What the header's names of a tensor's properties end with.
const PROPERTIES: [&str; 6] = ["name", "type", "rank", "shape", "elements", "bytes"];

/// An identifier for each name, all different from each other and from those of the others' properties.
pub(super) fn unique<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut out = vec![];
    for text in texts {
        let name = identifier(text);
        let names = std::iter::once(name.clone()).chain((2u32..).map(|n| format!("{name}_{n}")));
        let all = |name: &String| std::iter::once(name.clone()).chain(PROPERTIES.map(|p| format!("{name}_{p}")));
        let free = names.into_iter().find(|name| all(name).all(|n| !taken.contains(&n)));
        let free = free.unwrap_or(name);
        taken.extend(all(&free));
        out.push(free);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        for (text, name) in [
            ("serving_default_input:0", "serving_default_input_0"),
            ("3d", "m3d"),
            ("", "x"),
            ("日本", "x"),
            ("A.b/c", "a_b_c"),
        ] {
            assert_eq!(prefix(text), name);
        }
        assert_eq!(unique(["x", "X", "x_2", "x"].into_iter()), ["x", "x_2", "x_2_2", "x_3"]);
        let names = unique(["x", "x_shape", "X.Rank", "x_name_bytes", "y_type", "y"].into_iter());
        assert_eq!(names, ["x", "x_shape_2", "x_rank_2", "x_name_bytes", "y_type", "y_2"]);
    }
}
