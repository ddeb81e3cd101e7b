//! The plan as a C function: each instruction a statement, jumps as `goto`, registers and slots as local variables.
//!
//! What the plan machine checks in a run is checked here where it depends on one: ranges of buffers with computed bounds,
//! indices, overflow. Buffers with constant bounds lie where they should because the planner put them there.

use super::header::{parameters, quoted, statuses};
use super::support::FUNCTIONS;
use super::{ARENA_ALIGN, Model, kernel_name, may_fail};
use crate::codegen::c::uses_tile;
use crate::kernel::ir::Kernel;
use graphmend_cache_format::spec::{Binding, DimSpec, Instr, Space, Val};
use graphmend_cache_format::{BinOp, DType};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The text of `NAME_run` and `NAME_explain`.
pub(super) fn run(model: &Model<'_>, kernels: &[Kernel]) -> String {
    let mut r = Run {
        model,
        kernels,
        body: String::new(),
        helpers: BTreeSet::new(),
        regs: BTreeSet::new(),
        read: BTreeSet::new(),
        slots: BTreeSet::new(),
        views: BTreeSet::new(),
        spaces: BTreeSet::new(),
    };
    r.checks();
    r.instructions();
    let text = r.finish();
    format!("{text}{}", explain(model))
}

struct Run<'a> {
    model: &'a Model<'a>,
    kernels: &'a [Kernel],
    body: String,
    helpers: BTreeSet<&'static str>,
    regs: BTreeSet<u32>,
    /// Registers that are read.
    read: BTreeSet<u32>,
    slots: BTreeSet<u32>,
    /// Buffers with computed bounds.
    views: BTreeSet<u32>,
    /// Names of base addresses and lengths that are used.
    spaces: BTreeSet<String>,
}

/// A buffer right now, as C expressions.
struct View {
    pointer: String,
    bytes: String,
    dtype: DType,
}

impl Run<'_> {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.body, "    {text}");
    }

    fn fail(&mut self, condition: &str, status: &str) {
        let text = format!("if ({condition})\n        return {}_{status};", self.model.upper);
        self.line(&text);
    }

    fn helper(&mut self, name: &'static str) -> &'static str {
        self.helpers.insert(name);
        name
    }

    fn reg(&mut self, reg: u32) -> String {
        self.regs.insert(reg);
        format!("r{reg}")
    }

    fn val(&mut self, val: Val) -> String {
        match val {
            Val::Reg(reg) => {
                self.read.insert(reg);
                self.reg(reg)
            }
            Val::Imm(n) => number(n),
        }
    }

    /// Checks of what a run is given.
    fn checks(&mut self) {
        let upper = &self.model.upper;
        if self.model.plan.arena_bytes > 0 {
            self.fail(&format!("arena_bytes < {upper}_ARENA_BYTES"), "ARENA_TOO_SMALL");
        }
        self.fail(&format!("(uintptr_t)arena % {ARENA_ALIGN} != 0"), "ARENA_UNALIGNED");
        // Where a symbol stands first.
        let mut symbols: BTreeMap<&str, String> = BTreeMap::new();
        for (k, t) in self.model.inputs.iter().enumerate() {
            let size = t.spec.dtype.size();
            let aligned = if size > 1 { format!("(uintptr_t)inputs[{k}] % {size} != 0") } else { String::new() };
            let missing = if t.bytes() == Some(0) { String::new() } else { format!("!inputs[{k}]") };
            let wrong: Vec<String> = [missing, aligned].into_iter().filter(|text| !text.is_empty()).collect();
            if !wrong.is_empty() {
                self.fail(&wrong.join(" || "), "INPUT");
            }
            if t.fixed.is_some() {
                continue;
            }
            for (axis, dim) in t.spec.dims.iter().enumerate() {
                let at = format!("shapes->in_{}[{axis}]", t.ident);
                let mut wrong = match dim {
                    DimSpec::Fixed(n) => vec![format!("{at} != {}", number(*n as i64))],
                    DimSpec::Any => vec![format!("{at} < 0")],
                    DimSpec::Symbol { min, max, .. } => {
                        let mut list = vec![format!("{at} < {}", number(*min as i64))];
                        if *max < i64::MAX as u64 {
                            list.push(format!("{at} > {}", number(*max as i64)));
                        }
                        list
                    }
                };
                if let DimSpec::Symbol { name, .. } = dim {
                    match symbols.get(name.as_str()) {
                        Some(first) => wrong.push(format!("{at} != {first}")),
                        None => drop(symbols.insert(name, at)),
                    }
                }
                self.fail(&wrong.join(" || "), "SHAPE");
            }
            let call = self.helper("plan_bytes");
            let rank = t.spec.dims.len();
            self.fail(&format!("!{call}(shapes->in_{}, {rank}, {size}, &n{k})", t.ident), "SHAPE");
            self.spaces.insert(format!("n{k}"));
        }
    }

    fn instructions(&mut self) {
        let plan = self.model.plan;
        let targets: BTreeSet<u32> = plan
            .instrs
            .iter()
            .filter_map(|i| match i {
                Instr::Jump { target } | Instr::JumpIfZero { target, .. } => Some(*target),
                _ => None,
            })
            .collect();
        for (at, instr) in plan.instrs.iter().enumerate() {
            if targets.contains(&(at as u32)) {
                let _ = writeln!(self.body, "L{at}:");
            }
            self.instr(instr);
        }
    }

    fn instr(&mut self, instr: &Instr) {
        match instr {
            Instr::Set { dst, value } => {
                let (dst, value) = (self.reg(*dst), self.val(*value));
                self.line(&format!("{dst} = {value};"));
            }
            Instr::InputDim { dst, input, axis } => {
                let dst = self.reg(*dst);
                let Some(t) = self.model.inputs.get(*input as usize) else { return };
                let size = match t.fixed.as_ref().and_then(|dims| dims.get(*axis as usize)) {
                    Some(n) => number(*n as i64),
                    None => format!("shapes->in_{}[{axis}]", t.ident),
                };
                self.line(&format!("{dst} = {size};"));
            }
            Instr::Bin { op, dst, a, b } => self.arithmetic(*op, *dst, *a, *b),
            Instr::Select { dst, cond, a, b } => {
                let (dst, cond, a, b) = (self.reg(*dst), self.val(*cond), self.val(*a), self.val(*b));
                self.line(&format!("{dst} = {cond} ? {a} : {b};"));
            }
            Instr::LoadInt { dst, buf, index } => {
                let (view, index) = (self.view(*buf), self.val(*index));
                self.element(&view, &index);
                let dst = self.reg(*dst);
                let place = format!("((const gm_{} *)(const void *)({}))[{index}]", view.dtype, view.pointer);
                if view.dtype == DType::U64 {
                    self.fail(&format!("{place} > INT64_MAX"), "OVERFLOW");
                }
                self.line(&format!("{dst} = (int64_t){place};"));
            }
            Instr::StoreInt { buf, index, value } => {
                let (view, index, value) = (self.view(*buf), self.val(*index), self.val(*value));
                self.element(&view, &index);
                let value = match view.dtype {
                    DType::Bool => format!("{value} != 0"),
                    other => format!("(gm_{other}){value}"),
                };
                self.line(&format!("((gm_{} *)(void *)({}))[{index}] = {value};", view.dtype, view.pointer));
            }
            Instr::Dispatch { kernel, bufs, scalars, tiles, .. } => self.dispatch(*kernel, bufs, scalars, *tiles),
            Instr::Copy { dst, dst_offset, src, src_offset, bytes } => {
                self.copy((*dst, *dst_offset), (*src, *src_offset), *bytes);
            }
            Instr::Fill { buf, bits } => {
                let view = self.view(*buf);
                let size = view.dtype.size();
                let element = &bits.to_le_bytes()[..size];
                if element.iter().all(|b| *b == element[0]) {
                    let whole = if size == 1 { String::new() } else { format!(" - ({}) % {size}", view.bytes) };
                    self.line(&format!("memset({}, {}, ({}){whole});", view.pointer, element[0], view.bytes));
                    self.spaces.insert("memset".to_owned());
                } else {
                    let call = self.helper("plan_fill");
                    let text = format!("{call}({}, {}, UINT64_C({bits:#x}), {size});", view.pointer, view.bytes);
                    self.line(&text);
                }
            }
            Instr::SetSlot { slot, buf } => {
                let view = self.view(*buf);
                self.slots.insert(*slot);
                self.line(&format!("slot{slot}.p = {};", view.pointer));
                self.line(&format!("slot{slot}.n = {};", view.bytes));
            }
            Instr::Jump { target } => self.line(&format!("goto L{target};")),
            Instr::JumpIfZero { cond, target } => {
                let cond = self.val(*cond);
                self.line(&format!("if ({cond} == 0)\n        goto L{target};"));
            }
            Instr::Check { cond, message } => {
                let cond = self.val(*cond);
                self.fail(&format!("{cond} == 0"), &format!("CHECK + {message}"));
            }
            Instr::Reserve { bytes } => {
                let bytes = self.val(*bytes);
                self.fail(&format!("{bytes} < 0"), "OVERFLOW");
                let upper = &self.model.upper;
                let text = format!(
                    "if ((uint64_t){bytes} > arena_bytes) {{\n        shapes->arena_needed = (uint64_t){bytes};\n        return \
                     {upper}_ARENA_TOO_SMALL;\n    }}"
                );
                self.line(&text);
            }
            Instr::Return => self.outputs(),
        }
    }

    fn arithmetic(&mut self, op: BinOp, dst: u32, a: Val, b: Val) {
        if let (Val::Imm(x), Val::Imm(y)) = (a, b) {
            let dst = self.reg(dst);
            match op.apply(x, y) {
                Some(n) => self.line(&format!("{dst} = {};", number(n))),
                None => self.line(&format!("return {}_OVERFLOW;", self.model.upper)),
            }
            return;
        }
        let (dst, a, b) = (self.reg(dst), self.val(a), self.val(b));
        let plain = |sign: &str| format!("{dst} = {a} {sign} {b};");
        let (call, rounding) = match op {
            BinOp::Min => return self.line(&format!("{dst} = {a} < {b} ? {a} : {b};")),
            BinOp::Max => return self.line(&format!("{dst} = {a} > {b} ? {a} : {b};")),
            BinOp::And => return self.line(&plain("&")),
            BinOp::Or => return self.line(&plain("|")),
            BinOp::Xor => return self.line(&plain("^")),
            BinOp::Eq => return self.line(&plain("==")),
            BinOp::Ne => return self.line(&plain("!=")),
            BinOp::Lt => return self.line(&plain("<")),
            BinOp::Le => return self.line(&plain("<=")),
            BinOp::Mod | BinOp::Rem => {
                let call = self.helper(if op == BinOp::Mod { "plan_mod" } else { "plan_rem" });
                return self.line(&format!("{dst} = {call}({a}, {b});"));
            }
            BinOp::Add => ("plan_add", ""),
            BinOp::Sub => ("plan_sub", ""),
            BinOp::Mul => ("plan_mul", ""),
            BinOp::FloorDiv => ("plan_div", "0, 1, "),
            BinOp::CeilDiv => ("plan_div", "1, 0, "),
            BinOp::TruncDiv => ("plan_div", "0, 0, "),
        };
        let call = self.helper(call);
        self.fail(&format!("!{call}({a}, {b}, {rounding}&{dst})"), "OVERFLOW");
    }

    /// A buffer; one with computed bounds is checked to lie in its memory.
    fn view(&mut self, buf: u32) -> View {
        let spec = self.model.plan.buffers[buf as usize];
        let dtype = spec.dtype;
        let (base, room) = match spec.space {
            Space::Arena => ("a".to_owned(), "arena_bytes".to_owned()),
            Space::Weights => ("w".to_owned(), self.model.file.weights.len().to_string()),
            Space::Input(k) => {
                let bytes = self.model.inputs.get(k as usize).and_then(super::Tensor::bytes);
                (format!("x{k}"), bytes.map_or_else(|| format!("n{k}"), |n| n.to_string()))
            }
            Space::Slot(k) => {
                self.slots.insert(k);
                (format!("slot{k}.p"), format!("slot{k}.n"))
            }
        };
        self.spaces.insert(base.clone());
        let pointer = |offset: i64| if offset == 0 { base.clone() } else { format!("{base} + {offset}") };
        match (spec.offset, spec.bytes) {
            // The planner's own constants lie where they should; what a slot or an open input holds may be less.
            (Val::Imm(offset), Some(Val::Imm(bytes))) if matches!(spec.space, Space::Arena | Space::Weights) => {
                return View { pointer: pointer(offset), bytes: bytes.to_string(), dtype };
            }
            (Val::Imm(0), None) => return View { pointer: pointer(0), bytes: room, dtype },
            (Val::Imm(offset), Some(Val::Imm(bytes))) => {
                let known = room.parse::<i64>().ok();
                if known.is_some_and(|room| {
                    offset >= 0 && bytes >= 0 && offset.checked_add(bytes).is_some_and(|e| e <= room)
                }) {
                    return View { pointer: pointer(offset), bytes: bytes.to_string(), dtype };
                }
            }
            _ => {}
        }
        let (offset, bytes) = (self.val(spec.offset), spec.bytes.map_or_else(|| "-1".to_owned(), |b| self.val(b)));
        let call = self.helper("plan_view");
        self.views.insert(buf);
        self.fail(&format!("!{call}(&b{buf}, {base}, {room}, {offset}, {bytes})"), "BUFFER");
        View { pointer: format!("b{buf}.p"), bytes: format!("b{buf}.n"), dtype }
    }

    /// Checks that a view has an element.
    fn element(&mut self, view: &View, index: &str) {
        let size = view.dtype.size();
        let known = |text: &str| text.parse::<u64>().ok();
        if let (Some(index), Some(bytes)) = (known(index), known(&view.bytes))
            && index < bytes / size as u64
        {
            return;
        }
        let each = if size == 1 { String::new() } else { format!(" / {size}") };
        self.fail(&format!("{index} < 0 || (uint64_t){index} >= {}{each}", view.bytes), "INDEX");
    }

    fn dispatch(&mut self, kernel: u32, bufs: &[Binding], scalars: &[Val], tiles: Option<Val>) {
        let Some(k) = self.kernels.get(kernel as usize) else { return };
        let mut args = vec![];
        let mut seen: BTreeMap<u32, String> = BTreeMap::new();
        for binding in bufs {
            let pointer = match seen.get(&binding.buf) {
                Some(pointer) => pointer.clone(),
                None => self.view(binding.buf).pointer,
            };
            seen.insert(binding.buf, pointer.clone());
            args.push(pointer);
        }
        for scalar in scalars {
            args.push(self.val(*scalar));
        }
        let units = tiles.map_or_else(|| "1".to_owned(), |v| self.val(v));
        if uses_tile(k) {
            args.extend(["0".to_owned(), units.clone()]);
        }
        let call = format!("{}({})", kernel_name(kernel as usize), args.join(", "));
        // Without work units, there is nothing to call.
        let any = match tiles {
            Some(Val::Imm(n)) if n <= 0 => return,
            Some(Val::Reg(_)) => Some(format!("{units} > 0")),
            _ => None,
        };
        match (any, may_fail(k)) {
            (None, false) => self.line(&format!("{call};")),
            (Some(any), false) => self.line(&format!("if ({any})\n        {call};")),
            (None, true) => self.fail(&format!("{call} != 0"), "DATA"),
            (Some(any), true) => self.fail(&format!("{any} && {call} != 0"), "DATA"),
        }
    }

    fn copy(&mut self, (dst, dst_offset): (u32, Val), (src, src_offset): (u32, Val), bytes: Option<Val>) {
        let (to, from) = (self.view(dst), self.view(src));
        let known = |text: &str| text.parse::<i64>().ok();
        let call = self.helper("plan_move");
        if let (Val::Imm(d), Val::Imm(s), Some(room), Some(have)) =
            (dst_offset, src_offset, known(&to.bytes), known(&from.bytes))
        {
            let n = match bytes {
                None => Some(have - s),
                Some(Val::Imm(n)) => Some(n),
                Some(Val::Reg(_)) => None,
            };
            if let Some(n) = n.filter(|n| d >= 0 && s >= 0 && *n >= 0 && s + n <= have && d + n <= room) {
                self.line(&format!("{call}({} + {d}, {} + {s}, {n});", to.pointer, from.pointer));
                return;
            }
        }
        let part = self.helper("plan_view");
        let (d, s) = (self.val(dst_offset), self.val(src_offset));
        let n = bytes.map_or_else(|| "-1".to_owned(), |b| self.val(b));
        self.spaces.extend(["from".to_owned(), "to".to_owned()]);
        self.fail(&format!("!{part}(&from, {}, {}, {s}, {n})", from.pointer, from.bytes), "INDEX");
        self.fail(&format!("!{part}(&to, {}, {}, {d}, (int64_t)from.n)", to.pointer, to.bytes), "INDEX");
        self.line(&format!("{call}(to.p, from.p, from.n);"));
    }

    /// The end of a run.
    fn outputs(&mut self) {
        let plan = self.model.plan;
        for (k, (output, t)) in plan.outputs.iter().zip(&self.model.outputs).enumerate() {
            let view = self.view(output.buf);
            self.line(&format!("outputs[{k}] = {};", view.pointer));
            if t.fixed.is_none() {
                for (axis, dim) in output.dims.iter().enumerate() {
                    let dim = self.val(*dim);
                    self.line(&format!("shapes->out_{}[{axis}] = {dim};", t.ident));
                }
            }
        }
        self.line(&format!("return {}_OK;", self.model.upper));
    }

    fn finish(self) -> String {
        let model = self.model;
        let mut out = String::new();
        if !self.views.is_empty() || !self.slots.is_empty() || self.helpers.contains("plan_view") {
            out += "\nstruct plan_view {\n    uint8_t *p;\n    size_t n;\n};\n";
        }
        if self.spaces.contains("memset") {
            out += "\nvoid *memset(void *to, int byte, size_t bytes);\n";
        }
        for (name, text) in FUNCTIONS {
            if self.helpers.contains(name) {
                let _ = write!(out, "\n{text}");
            }
        }
        let _ = write!(out, "\nint {}_run({})\n{{\n", model.name, parameters(model));
        let mut local = |text: String| {
            let _ = writeln!(out, "    {text}");
        };
        if self.spaces.contains("a") {
            local("uint8_t *const a = (uint8_t *)arena;".into());
        }
        if self.spaces.contains("w") {
            // Of no weights there may be empty tensors.
            let weights = if model.file.weights.is_empty() { "arena" } else { "weights" };
            local(format!("uint8_t *const w = (uint8_t *){weights};"));
        }
        for k in 0..model.inputs.len() {
            if self.spaces.contains(&format!("x{k}")) {
                local(format!("uint8_t *const x{k} = (uint8_t *)inputs[{k}];"));
            }
            if self.spaces.contains(&format!("n{k}")) {
                local(format!("size_t n{k};"));
            }
        }
        for reg in &self.regs {
            local(format!("int64_t r{reg} = 0;"));
        }
        for slot in &self.slots {
            local(format!("struct plan_view slot{slot} = {{0, 0}};"));
        }
        for view in &self.views {
            local(format!("struct plan_view b{view};"));
        }
        for part in ["from", "to"] {
            if self.spaces.contains(part) {
                local(format!("struct plan_view {part};"));
            }
        }
        for reg in self.regs.difference(&self.read) {
            local(format!("(void)r{reg};"));
        }
        for (unused, names) in [("inputs", model.inputs.is_empty()), ("outputs", model.outputs.is_empty())] {
            if names {
                local(format!("(void){unused};"));
            }
        }
        if model.plan.arena_bytes == 0 && !self.body.contains("arena_bytes") {
            local("(void)arena_bytes;".into());
        }
        if model.shapes && !self.body.contains("shapes->") {
            local("(void)shapes;".into());
        }
        out += &self.body;
        out += "}\n";
        out
    }
}

/// A constant of the plan.
fn number(n: i64) -> String {
    match n {
        i64::MIN => "INT64_MIN".to_owned(),
        n if i64::from(n as i32) == n && n >= 0 => n.to_string(),
        n if n < 0 => format!("(-INT64_C({}))", n.unsigned_abs()),
        n => format!("INT64_C({n})"),
    }
}

/// The sentence for each status.
fn explain(model: &Model<'_>) -> String {
    let Model { name, upper, .. } = model;
    let mut cases = String::new();
    for (word, text) in statuses(model).iter().filter(|(word, _)| *word != "CHECK") {
        let _ = writeln!(cases, "    case {upper}_{word}:\n        return {};", quoted(text));
    }
    for (k, message) in model.plan.messages.iter().enumerate() {
        let _ = writeln!(cases, "    case {upper}_CHECK + {k}:\n        return {};", quoted(message));
    }
    format!(
        "\nconst char *{name}_explain(int status)\n{{\n    switch (status) {{\n{cases}    default:\n        return \"unknown \
         status\";\n    }}\n}}\n"
    )
}
