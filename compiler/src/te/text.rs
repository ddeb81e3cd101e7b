//! Text form of expressions and programs.

use super::expr::{Expr, Func2, Node};
use super::program::{Block, Check, Def, Program, Step, TensorId};
use crate::dtype::DType;
use crate::kernel::ir::{Cmp, Imm};
use core::fmt::{Formatter, Result, Write};

/// Writes an expression.
pub(super) fn expr(e: Expr, f: &mut Formatter<'_>) -> Result {
    match e.node() {
        Node::Const(c) => imm(c, f),
        Node::Int(i) => write!(f, "{i}"),
        Node::Load(t, index) => {
            write!(f, "t{}[", t.0)?;
            for (k, i) in index.iter().enumerate() {
                write!(f, "{}{i}", if k > 0 { ", " } else { "" })?;
            }
            f.write_char(']')
        }
        Node::Un(u, a) => write!(f, "{}({a})", format!("{u:?}").to_lowercase()),
        Node::Bin(b, x, y) => match symbol(b) {
            Some(s) => write!(f, "({x} {s} {y})"),
            None => write!(f, "{}({x}, {y})", format!("{b:?}").to_lowercase()),
        },
        Node::Cmp(c, x, y) => {
            let s = match c {
                Cmp::Eq => "==",
                Cmp::Ne => "!=",
                Cmp::Lt => "<",
                Cmp::Le => "<=",
                Cmp::Gt => ">",
                Cmp::Ge => ">=",
            };
            write!(f, "({x} {s} {y})")
        }
        Node::Select(c, x, y) => write!(f, "select({c}, {x}, {y})"),
        Node::Cast(t, x) => write!(f, "{t}({x})"),
        Node::Bitcast(t, x) => write!(f, "bits_{t}({x})"),
        Node::Acc(k) => write!(f, "acc{k}"),
    }
}

fn symbol(b: Func2) -> Option<&'static str> {
    Some(match b {
        Func2::Add => "+",
        Func2::Sub => "-",
        Func2::Mul => "*",
        Func2::Div => "/",
        Func2::Rem => "%",
        Func2::And => "&",
        Func2::Or => "|",
        Func2::Xor => "^",
        Func2::Shl => "<<",
        Func2::Shr => ">>",
        Func2::Min | Func2::Max | Func2::Pow | Func2::Atan2 => return None,
    })
}

fn imm(c: Imm, f: &mut Formatter<'_>) -> Result {
    let shift = 64 - 8 * c.elem.size() as u32;
    match c.elem {
        DType::F32 => write!(f, "{:?}", f32::from_bits(c.bits as u32)),
        DType::F64 => write!(f, "{:?}f64", f64::from_bits(c.bits)),
        DType::Bool => write!(f, "{}", c.bits != 0),
        t if t.is_signed() => write!(f, "{}{t}", ((c.bits << shift) as i64) >> shift),
        t => write!(f, "{}{t}", c.bits),
    }
}

/// The whole program, a definition a line; of tensors, those that are `wanted`.
pub fn program(p: &Program, wanted: &dyn Fn(TensorId) -> bool) -> String {
    let mut out = String::new();
    block(p, &p.main, wanted, 0, &mut out);
    let names: Vec<String> = p.outputs.iter().map(|t| format!("t{}", t.0)).collect();
    let _ = writeln!(out, "return {}", names.join(", "));
    out
}

fn block(p: &Program, b: &Block, wanted: &dyn Fn(TensorId) -> bool, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth);
    for step in &b.steps {
        let _ = match step {
            Step::Define(t) if !wanted(*t) => Ok(()),
            Step::Define(t) => {
                let t_ = &p.tensors[t.0 as usize];
                let shape: Vec<String> = t_.shape.iter().map(|d| d.to_string()).collect();
                let head = format!("{pad}t{}: {}[{}] =", t.0, t_.dtype, shape.join(", "));
                let vars = |v: &[crate::sym::VarId]| v.iter().map(|v| v.to_string()).collect::<Vec<_>>().join(", ");
                let body = match &t_.def {
                    Def::Input(k) => format!("input {k}"),
                    Def::Const(c) => format!("const {} bytes", c.len()),
                    Def::Map { vars: v, body } => format!("map ({}) {body}", vars(v)),
                    Def::Reduce { vars: v, rvars, kind, body } => {
                        format!("{} ({}) over ({}) {body}", format!("{kind:?}").to_lowercase(), vars(v), vars(rvars))
                    }
                    Def::Fold { vars: v, rvars, init, step, result } => {
                        format!("fold ({}) over ({}) {init:?} -> {step:?}; {result}", vars(v), vars(rvars))
                    }
                    Def::View(src) => format!("view t{}", src.0),
                    Def::Custom(c, k) => {
                        let args: Vec<String> = c.inputs.iter().map(|t| format!("t{}", t.0)).collect();
                        format!("{}({}).{k}", c.name, args.join(", "))
                    }
                    Def::Slot => "slot".into(),
                    Def::Parts(room) => format!("parts, room for {room}"),
                    Def::Assembled { lodgers, pieces } => {
                        let mut text: Vec<String> = lodgers.iter().map(|t| format!("t{}", t.0)).collect();
                        text.extend(
                            pieces.iter().map(|p| format!("from {:?} ({}) {}", p.start, vars(&p.vars), p.body)),
                        );
                        format!("of {}", text.join("; "))
                    }
                };
                let home = p.homes.get(t).map_or(String::new(), |h| format!(" in t{} at {:?}", h.tensor.0, h.offset));
                writeln!(out, "{head} {body}{home}  // {}", t_.name)
            }
            Step::Check(c) => match c {
                Check::Equal(a, b, m) => writeln!(out, "{pad}check {a} == {b}: {m}"),
                Check::AtMost(a, b, m) => writeln!(out, "{pad}check {a} <= {b}: {m}"),
            },
            Step::If { cond, then, then_results, other, other_results, results, .. } => {
                let _ = writeln!(out, "{pad}if {cond} {{");
                block(p, then, wanted, depth + 1, out);
                let _ = writeln!(out, "{pad}  give {then_results:?}\n{pad}}} else {{");
                block(p, other, wanted, depth + 1, out);
                writeln!(out, "{pad}  give {other_results:?}\n{pad}}} -> {results:?}")
            }
            Step::Loop(l) => {
                let cond = |c: Option<crate::sym::Int>| c.map_or("true".into(), |c| c.to_string());
                let most = l.most.map_or("any number".into(), |m| m.to_string());
                let _ = writeln!(out, "{pad}loop {} up to {most}, if {} {{", l.trip, cond(l.start));
                for c in &l.carried {
                    let _ = writeln!(out, "{pad}  carry t{} from t{}", c.current.0, c.init.0);
                }
                for d in &l.dims {
                    let _ = writeln!(out, "{pad}  carry {} from {}", d.current, d.init);
                }
                block(p, &l.body, wanted, depth + 1, out);
                for c in &l.carried {
                    let _ = writeln!(out, "{pad}  t{} = t{}, at last t{}", c.current.0, c.next.0, c.result.0);
                }
                for d in &l.dims {
                    let _ = writeln!(out, "{pad}  {} = {}, at last {}", d.current, d.next, d.result);
                }
                for s in &l.scans {
                    let _ = writeln!(out, "{pad}  t{} is a part of t{}", s.element.0, s.result.0);
                }
                writeln!(out, "{pad}}} while {}", cond(l.go_on))
            }
        };
    }
}
