//! Splits kernel text into tokens.

use super::SyntaxError;

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    /// A name, keyword or number without sign.
    Word(String),
    /// `%` and a number.
    Reg(u32),
    /// A quoted string, without quotes and escapes.
    Quoted(String),
    Punct(char),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) => write!(f, "`{word}`"),
            Token::Reg(number) => write!(f, "`%{number}`"),
            Token::Quoted(text) => write!(f, "{text:?}"),
            Token::Punct(c) => write!(f, "`{c}`"),
        }
    }
}

/// The tokens with the lines they stand on.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, SyntaxError> {
    let mut out = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let error = |reason: String| SyntaxError { line: number, reason };
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            if rest.starts_with("//") {
                break;
            }
            let length = match c {
                _ if c.is_whitespace() => {
                    rest = &rest[c.len_utf8()..];
                    continue;
                }
                '%' => {
                    let digits = 1 + span(&rest[1..], |c| c.is_ascii_digit());
                    let reg = rest[1..digits].parse().map_err(|_| error(format!("no register: {rest}")))?;
                    out.push((number, Token::Reg(reg)));
                    digits
                }
                '"' => {
                    let (text, length) = quoted(rest).ok_or_else(|| error("a string without end".to_string()))?;
                    out.push((number, Token::Quoted(text)));
                    length
                }
                _ if c.is_alphanumeric() || c == '_' => {
                    let length = word(rest);
                    out.push((number, Token::Word(rest[..length].to_string())));
                    length
                }
                _ => {
                    out.push((number, Token::Punct(c)));
                    c.len_utf8()
                }
            };
            rest = &rest[length..];
        }
    }
    Ok(out)
}

fn span(text: &str, accept: impl Fn(char) -> bool) -> usize {
    text.find(|c| !accept(c)).unwrap_or(text.len())
}

/// Length of the word that `text` starts with. In a number, an exponent's sign belongs to it.
fn word(text: &str) -> usize {
    let accept = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let length = span(text, accept);
    let number = text.starts_with(|c: char| c.is_ascii_digit()) && !text.starts_with("0x");
    if number && text[..length].ends_with('e') && text[length..].starts_with(['-', '+']) {
        return length + 1 + span(&text[length + 1..], accept);
    }
    length
}

fn quoted(text: &str) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, at + 1)),
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            _ => out.push(c),
        }
    }
    None
}
