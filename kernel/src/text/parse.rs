//! Reads kernels from text. Only the syntax is checked here; the verifier checks the rest.

use super::lex::{Token, tokens};
use super::{BIN_OPS, CMPS, DOTS, HORIZONTALS, SyntaxError, UN_OPS, op_of};
use crate::dtype::DType;
use crate::ir::{Access, Buf, BufParam, Imm, Kernel, Op, Reg, Stmt, Type, Var};
use crate::scalar;
use crate::verify::MAX_DEPTH;
use std::collections::BTreeMap;

/// Reads one kernel. The result may break rules that [`verify`](crate::verify::verify) checks.
pub fn parse(text: &str) -> Result<Kernel, SyntaxError> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, types: BTreeMap::new(), depth: 0 };
    let kernel = parser.kernel()?;
    match parser.peek() {
        None => Ok(kernel),
        Some(token) => Err(parser.error(format!("{token} after the kernel"))),
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    /// Types of registers, from their definitions.
    types: BTreeMap<u32, Type>,
    depth: usize,
}

type Parsed<T> = Result<T, SyntaxError>;

impl Parser {
    fn error(&self, reason: impl Into<String>) -> SyntaxError {
        let line = self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(line, _)| *line);
        SyntaxError { line, reason: reason.into() }
    }

    fn expected<T>(&self, what: &str) -> Parsed<T> {
        match self.peek() {
            Some(token) => Err(self.error(format!("expected {what}, found {token}"))),
            None => Err(self.error(format!("expected {what}, found the end"))),
        }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn peek_word(&self) -> &str {
        match self.peek() {
            Some(Token::Word(word)) => word,
            _ => "",
        }
    }

    fn accept(&mut self, c: char) -> bool {
        let found = self.peek() == Some(&Token::Punct(c));
        self.at += found as usize;
        found
    }

    fn punct(&mut self, c: char) -> Parsed<()> {
        if self.accept(c) { Ok(()) } else { self.expected(&format!("`{c}`")) }
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        self.at += found as usize;
        found
    }

    fn word(&mut self, what: &str) -> Parsed<String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => self.expected(what),
        }
    }

    fn reg(&mut self) -> Parsed<Reg> {
        match self.peek() {
            Some(Token::Reg(number)) => {
                let reg = Reg(*number);
                self.at += 1;
                Ok(reg)
            }
            _ => self.expected("a register"),
        }
    }

    fn comma_reg(&mut self) -> Parsed<Reg> {
        self.punct(',')?;
        self.reg()
    }

    /// A number with an optional sign, in words of `T`.
    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        let sign = if self.accept('-') { "-" } else { "" };
        let word = self.word(what)?;
        match format!("{sign}{word}").parse() {
            Ok(number) => Ok(number),
            Err(_) => {
                self.at -= 1;
                self.expected(what)
            }
        }
    }

    /// A name made of a letter and a number, such as `b3`.
    fn name(&mut self, sigil: char) -> Parsed<u32> {
        let what = format!("`{sigil}` and a number");
        let word = self.word(&what)?;
        match word.strip_prefix(sigil).and_then(|digits| digits.parse().ok()) {
            Some(number) => Ok(number),
            None => {
                self.at -= 1;
                self.expected(&what)
            }
        }
    }

    fn is_name(&self, sigil: char) -> bool {
        let digits = self.peek_word().strip_prefix(sigil).unwrap_or("");
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    }

    fn dtype(&mut self) -> Parsed<DType> {
        let word = self.word("an element type")?;
        match DType::ALL.into_iter().find(|dtype| dtype.name() == word) {
            Some(dtype) => Ok(dtype),
            None => {
                self.at -= 1;
                self.expected("an element type")
            }
        }
    }

    fn ty(&mut self) -> Parsed<Type> {
        let word = self.word("a type")?;
        let (elem, lanes) = match word.split_once('x') {
            Some((elem, lanes)) => (elem, lanes.parse().ok()),
            None => (word.as_str(), Some(1)),
        };
        let elem = DType::ALL.into_iter().find(|dtype| dtype.name() == elem);
        match (elem, lanes) {
            (Some(elem), Some(lanes)) => Ok(Type { elem, lanes }),
            _ => {
                self.at -= 1;
                self.expected("a type")
            }
        }
    }

    fn kernel(&mut self) -> Parsed<Kernel> {
        if !self.accept_word("kernel") {
            return self.expected("`kernel`");
        }
        let name = match self.peek() {
            Some(Token::Quoted(name)) => name.clone(),
            _ => return self.expected("the kernel's name in quotes"),
        };
        self.at += 1;
        let tiled = self.accept_word("tiled");
        self.punct('{')?;
        let bufs = self.bufs()?;
        let scalars = if self.accept_word("scalars") { self.number("a number")? } else { 0 };
        let vars = self.vars()?;
        let body = self.block_rest()?;
        let mut regs = Vec::with_capacity(self.types.len());
        for (number, ty) in &self.types {
            if *number as usize != regs.len() {
                return Err(self.error(format!("%{} is not defined", regs.len())));
            }
            regs.push(*ty);
        }
        Ok(Kernel { name, bufs, scalars, tiled, regs, vars, body })
    }

    fn bufs(&mut self) -> Parsed<Vec<BufParam>> {
        let mut bufs = Vec::new();
        while self.is_name('b') {
            if self.name('b')? as usize != bufs.len() {
                return Err(self.error(format!("the next buffer is b{}", bufs.len())));
            }
            self.punct(':')?;
            let access = match self.word("`read` or `write`")?.as_str() {
                "read" => Access::Read,
                "write" => Access::Write,
                other => {
                    return Err(self.error(format!("expected `read` or `write`, found `{other}`")));
                }
            };
            bufs.push(BufParam { dtype: self.dtype()?, access });
        }
        Ok(bufs)
    }

    fn vars(&mut self) -> Parsed<Vec<Type>> {
        let mut vars = Vec::new();
        while self.is_name('v') && self.tokens.get(self.at + 1).is_some_and(|(_, t)| *t == Token::Punct(':')) {
            if self.name('v')? as usize != vars.len() {
                return Err(self.error(format!("the next variable is v{}", vars.len())));
            }
            self.punct(':')?;
            vars.push(self.ty()?);
        }
        Ok(vars)
    }

    fn block(&mut self) -> Parsed<Vec<Stmt>> {
        self.punct('{')?;
        self.block_rest()
    }

    fn block_rest(&mut self) -> Parsed<Vec<Stmt>> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("blocks are nested deeper than {MAX_DEPTH}")));
        }
        let mut stmts = Vec::new();
        while !self.accept('}') {
            stmts.push(self.stmt()?);
        }
        self.depth -= 1;
        Ok(stmts)
    }

    fn stmt(&mut self) -> Parsed<Stmt> {
        if matches!(self.peek(), Some(Token::Reg(_))) {
            let reg = self.reg()?;
            self.punct(':')?;
            let ty = self.ty()?;
            self.types.insert(reg.0, ty);
            self.punct('=')?;
            return Ok(Stmt::Let(reg, self.operation(ty)?));
        }
        if self.is_name('v') {
            let var = Var(self.name('v')?);
            self.punct('=')?;
            return Ok(Stmt::Set(var, self.reg()?));
        }
        if self.accept_word("store") {
            let (buf, index, disp) = self.place()?;
            self.punct('=')?;
            return Ok(Stmt::Store { buf, index, disp, value: self.reg()? });
        }
        if self.accept_word("prefetch") {
            let (buf, index, disp) = self.place()?;
            return Ok(Stmt::Prefetch { buf, index, disp });
        }
        if self.accept_word("for") {
            return self.for_();
        }
        if self.accept_word("if") {
            let cond = self.reg()?;
            let then = self.block()?;
            let other = if self.accept_word("else") { self.block()? } else { Vec::new() };
            return Ok(Stmt::If { cond, then, other });
        }
        if self.accept_word("while") {
            let head = self.block()?;
            let cond = self.reg()?;
            return Ok(Stmt::While { head, cond, body: self.block()? });
        }
        if self.accept_word("return") {
            return Ok(Stmt::Return(self.number("a status")?));
        }
        self.expected("a statement")
    }

    fn for_(&mut self) -> Parsed<Stmt> {
        let ivar = self.reg()?;
        self.types.insert(ivar.0, Type::scalar(DType::I64));
        if !self.accept_word("in") {
            return self.expected("`in`");
        }
        let lo = self.reg()?;
        self.punct('.')?;
        self.punct('.')?;
        let hi = self.reg()?;
        if !self.accept_word("step") {
            return self.expected("`step`");
        }
        let step = self.number("a step")?;
        Ok(Stmt::For { ivar, lo, hi, step, body: self.block()? })
    }

    /// `b0[%1 + 2]`.
    fn place(&mut self) -> Parsed<(Buf, Reg, i64)> {
        let buf = Buf(self.name('b')?);
        self.punct('[')?;
        let index = self.reg()?;
        let disp = if self.accept('+') || self.peek() == Some(&Token::Punct('-')) {
            self.number("a displacement")?
        } else {
            0
        };
        self.punct(']')?;
        Ok((buf, index, disp))
    }

    fn lane(&mut self) -> Parsed<u16> {
        self.punct('[')?;
        let lane = self.number("a lane")?;
        self.punct(']')?;
        Ok(lane)
    }

    fn operation(&mut self, ty: Type) -> Parsed<Op> {
        let word = self.word("an operation")?;
        Ok(match word.as_str() {
            "const" => Op::Const(self.constant(ty.elem)?, ty.lanes),
            "scalar" => Op::Scalar(self.number("a scalar's number")?),
            "tile.lo" => Op::TileLo,
            "tile.hi" => Op::TileHi,
            "fma" => Op::Fma(self.reg()?, self.comma_reg()?, self.comma_reg()?),
            "select" => Op::Select(self.reg()?, self.comma_reg()?, self.comma_reg()?),
            "cast" => {
                let to = if self.peek_word().is_empty() { ty.elem } else { self.dtype()? };
                Op::Cast(to, self.reg()?)
            }
            "bitcast" => Op::Bitcast(ty.elem, self.reg()?),
            "splat" => Op::Splat(self.reg()?, ty.lanes),
            "extract" => Op::Extract(self.reg()?, self.lane()?),
            "insert" => Op::Insert(self.reg()?, self.lane()?, self.comma_reg()?),
            "shuffle" => {
                let (a, b) = (self.reg()?, self.comma_reg()?);
                self.punct('[')?;
                let mut picks = vec![self.number("a lane")?];
                while self.accept(',') {
                    picks.push(self.number("a lane")?);
                }
                self.punct(']')?;
                Op::Shuffle(a, b, picks)
            }
            "iota" => Op::Iota(ty.elem, ty.lanes),
            "load" => {
                let (buf, index, disp) = self.place()?;
                Op::Load { buf, index, disp, lanes: ty.lanes }
            }
            "words" => {
                let (buf, index, disp) = self.place()?;
                Op::Words { buf, index, disp, lanes: ty.lanes }
            }
            "get" => Op::Get(Var(self.name('v')?)),
            other => {
                if let Some(un) = op_of(&UN_OPS, other) {
                    Op::Un(un, self.reg()?)
                } else if let Some(bin) = op_of(&BIN_OPS, other) {
                    Op::Bin(bin, self.reg()?, self.comma_reg()?)
                } else if let Some(cmp) = op_of(&CMPS, other) {
                    Op::Cmp(cmp, self.reg()?, self.comma_reg()?)
                } else if let Some(dot) = op_of(&DOTS, other) {
                    Op::Dot(dot, self.reg()?, self.comma_reg()?, self.comma_reg()?)
                } else if let Some(kind) = op_of(&HORIZONTALS, other) {
                    Op::Horizontal(kind, self.reg()?)
                } else {
                    self.at -= 1;
                    return self.expected("an operation");
                }
            }
        })
    }

    fn constant(&mut self, elem: DType) -> Parsed<Imm> {
        let nan = self.accept_word("nan");
        let bits = match elem {
            DType::F32 | DType::F64 if nan => {
                self.punct(':')?;
                let word = self.word("the bits of a NaN")?;
                match word.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
                    Some(bits) => bits,
                    None => return Err(self.error(format!("no bits: {word}"))),
                }
            }
            DType::F32 => self.number::<f32>("a number")?.to_bits() as u64,
            DType::F64 => self.number::<f64>("a number")?.to_bits(),
            DType::Bool if self.accept_word("false") => 0,
            DType::Bool if self.accept_word("true") => 1,
            DType::Bool | DType::U64 | DType::F16 | DType::BF16 => self.number("a number")?,
            _ => {
                let v: i64 = self.number("an integer")?;
                let bits = scalar::from_i64(elem, v);
                if scalar::to_i64(elem, bits) != v {
                    return Err(self.error(format!("{v} is no {elem}")));
                }
                bits
            }
        };
        Ok(Imm { elem, bits })
    }
}
