//! Vectors: types, and helpers that apply an operation to all lanes.
//!
//! Vectors of `f32`, `i32` and `u32`, and masks (all bits or none in 32-bit lanes), are the compiler's own where it has them;
//! an operation that the language has for these is one expression, or an instruction ([`neon`]). All others go lane by lane,
//! which compilers see through.

use super::helpers::{Helpers, bin_word, cmp_sign, cmp_word, word};
use super::literal::scalar_type;
use super::neon;
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, UnOp};

/// Whether vectors of this type are the compiler's own.
fn native(elem: DType) -> bool {
    matches!(elem, DType::Bool | DType::F32 | DType::I32 | DType::U32)
}

/// Name of a vector type.
fn type_name(elem: DType, lanes: u16) -> String {
    match elem {
        DType::Bool => format!("gm_mask{lanes}"),
        _ => format!("gm_{elem}x{lanes}"),
    }
}

/// A place of a lane.
fn place(elem: DType, vector: &str, lane: &str) -> String {
    if native(elem) { format!("GM_LANE({vector}, {lane})") } else { format!("{vector}.lane[{lane}]") }
}

/// A lane as a scalar.
pub(super) fn lane_of(elem: DType, vector: &str, lane: u16) -> String {
    let place = place(elem, vector, &lane.to_string());
    if elem == DType::Bool { format!("({place} != 0)") } else { place }
}

/// What an element of a vector is when it is put there as the scalar `x`.
fn as_lane(elem: DType, x: &str) -> String {
    if elem == DType::Bool { format!("-(int32_t)({x})") } else { format!("({})({x})", scalar_type(elem)) }
}

/// A function of all lanes.
struct Lanewise<'a> {
    name: String,
    to: DType,
    from: &'a [DType],
    lanes: u16,
    /// The whole result where vectors are the compiler's own.
    whole: Option<String>,
    /// The body on 32-bit Arm with NEON.
    neon: Option<String>,
}

/// What `neon` gives for vectors that NEON has.
fn for_neon(elem: DType, lanes: u16, body: impl FnOnce() -> Option<String>) -> Option<String> {
    if native(elem) && lanes == neon::LANES { body() } else { None }
}

impl Helpers {
    /// The name of a vector type.
    pub(super) fn vector(&mut self, elem: DType, lanes: u16) -> String {
        let name = type_name(elem, lanes);
        if native(elem) {
            self.ask("GM_LANE", |_| {
                "#if GM_VECTORS\n#define GM_LANE(v, i) ((v)[i])\n#else\n#define GM_LANE(v, i) ((v).lane[i])\n#endif\n"
                    .into()
            });
            let scalar = if elem == DType::Bool { "int32_t" } else { scalar_type(elem) };
            let bytes = 4 * lanes;
            self.ask(&name, |_| {
                format!(
                    "#if GM_VECTORS\ntypedef {scalar} {name} __attribute__((vector_size({bytes})));\n#else\ntypedef struct {{ \
                     {scalar} lane[{lanes}]; }} {name};\n#endif\n"
                )
            });
        } else {
            let scalar = scalar_type(elem);
            self.ask(&name, |_| format!("typedef struct {{ {scalar} lane[{lanes}]; }} {name};\n"));
        }
        name
    }

    /// A helper that makes a vector of lanes.
    pub(super) fn make(&mut self, elem: DType, lanes: u16) -> String {
        let ty = self.vector(elem, lanes);
        let name = format!("{ty}_of");
        let params: Vec<String> = (0..lanes).map(|i| format!("{} x{i}", scalar_type(elem))).collect();
        let lane = |i: u16| match elem {
            DType::Bool => format!("-(int32_t)x{i}"),
            _ => format!("x{i}"),
        };
        let values: Vec<String> = (0..lanes).map(lane).collect();
        let values = values.join(", ");
        let body = match native(elem) {
            true => format!(
                "#if GM_VECTORS\n    const {ty} v = {{{values}}};\n#else\n    const {ty} v = {{{{{values}}}}};\n#endif\n"
            ),
            false => format!("    const {ty} v = {{{{{values}}}}};\n"),
        };
        self.ask(&name, |_| format!("GM_INLINE {ty} {name}({})\n{{\n{body}    return v;\n}}\n", params.join(", ")));
        name
    }

    /// A helper that copies a scalar to all lanes.
    pub(super) fn splat(&mut self, elem: DType, lanes: u16) -> String {
        let (ty, make) = (self.vector(elem, lanes), self.make(elem, lanes));
        let name = format!("{ty}_all");
        let values = vec!["x"; lanes.into()].join(", ");
        self.ask(&name, |_| {
            format!("GM_INLINE {ty} {name}({} x)\n{{\n    return {make}({values});\n}}\n", scalar_type(elem))
        });
        name
    }

    /// A helper that loads a vector.
    pub(super) fn load(&mut self, stored: DType, lanes: u16) -> String {
        let elem = stored.compute();
        let ty = self.vector(elem, lanes);
        let name = format!("gm_load_{stored}x{lanes}");
        let of_bytes = matches!(stored, DType::I8 | DType::U8);
        let each = self.loaded(stored, "p[i]");
        let value = as_lane(elem, &each);
        let place = place(elem, "v", "i");
        let each = format!(
            "    {ty} v = {{0}};\n    int i;\n    for (i = 0; i < {lanes}; i++)\n        {place} = {value};\n    return v;\n"
        );
        let body = match native(elem) && elem != DType::Bool && stored == elem {
            true => {
                let (scalar, bytes) = (scalar_type(elem), 4 * lanes);
                format!(
                    "#if GM_VECTORS\n    typedef {scalar} unaligned __attribute__((vector_size({bytes}), aligned(4), \
                     may_alias));\n    return ({ty})*(const unaligned *)(const void *)p;\n#else\n{each}#endif\n"
                )
            }
            false if of_bytes => format!("    {ty} v;\n    gm_copy(&v, p, sizeof v);\n    return v;\n"),
            false => each,
        };
        self.ask(&name, |_| format!("GM_INLINE {ty} {name}(const gm_{stored} *p)\n{{\n{body}}}\n"));
        name
    }

    /// A helper that stores a vector.
    pub(super) fn store(&mut self, stored: DType, lanes: u16) -> String {
        let elem = stored.compute();
        let ty = self.vector(elem, lanes);
        let name = format!("gm_store_{stored}x{lanes}");
        let of_bytes = matches!(stored, DType::I8 | DType::U8);
        let place = place(elem, "v", "i");
        let lane = if elem == DType::Bool { format!("{place} != 0") } else { place };
        let value = self.stored(stored, &lane);
        let each = format!("    int i;\n    for (i = 0; i < {lanes}; i++)\n        p[i] = {value};\n");
        let body = match native(elem) && elem != DType::Bool && stored == elem {
            true => {
                let (scalar, bytes) = (scalar_type(elem), 4 * lanes);
                format!(
                    "#if GM_VECTORS\n    typedef {scalar} unaligned __attribute__((vector_size({bytes}), aligned(4), \
                     may_alias));\n    *(unaligned *)(void *)p = (unaligned)v;\n#else\n{each}#endif\n"
                )
            }
            false if of_bytes => "    gm_copy(p, &v, sizeof v);\n".to_owned(),
            false => each,
        };
        self.ask(&name, |_| format!("GM_INLINE void {name}(gm_{stored} *p, {ty} v)\n{{\n{body}}}\n"));
        name
    }

    /// A helper that applies `each`, an expression of the scalars `x`, `y`, `z`, to all lanes.
    fn lanewise(&mut self, l: Lanewise<'_>, each: &str) -> String {
        let Lanewise { name, to, from, lanes, whole, neon } = l;
        let ty = self.vector(to, lanes);
        let mut params = vec![];
        let mut scalars = String::new();
        for (elem, x) in from.iter().zip(["x", "y", "z"]) {
            params.push(format!("{} v{x}", self.vector(*elem, lanes)));
            let lane = place(*elem, &format!("v{x}"), "i");
            let lane = if *elem == DType::Bool { format!("{lane} != 0") } else { lane };
            scalars += &format!("        const {} {x} = {lane};\n", scalar_type(*elem));
        }
        let result = place(to, "v", "i");
        let value = as_lane(to, each);
        let each = format!(
            "    {ty} v = {{0}};\n    int i;\n    for (i = 0; i < {lanes}; i++) {{\n{scalars}        {result} = {value};\n    \
             }}\n    return v;\n"
        );
        let mut ways = vec![];
        if let Some(neon) = neon {
            ways.push(("GM_NEON", neon));
        }
        if let Some(whole) = whole {
            let fma = from.len() == 3 && to == DType::F32 && from[0] == to;
            let condition = if fma { "GM_VECTORS && !GM_FMA" } else { "GM_VECTORS" };
            ways.push((condition, format!("    return {whole};\n")));
        }
        let mut body = String::new();
        for (k, (condition, way)) in ways.iter().enumerate() {
            body += &format!("#{} {condition}\n{way}", if k == 0 { "if" } else { "elif" });
        }
        body += &if ways.is_empty() { each } else { format!("#else\n{each}#endif\n") };
        self.ask(&name, |_| format!("GM_INLINE {ty} {name}({})\n{{\n{body}}}\n", params.join(", ")));
        name
    }

    /// A one-operand operation on vectors; `each` is that on the scalar `x`.
    pub(super) fn vector_un(&mut self, op: UnOp, elem: DType, lanes: u16, each: &str) -> String {
        let ty = self.vector(elem, lanes);
        let whole = match (op, elem) {
            (UnOp::Not, DType::Bool | DType::I32 | DType::U32) => Some("~vx".to_owned()),
            (UnOp::Neg, DType::F32) => Some("-vx".to_owned()),
            (UnOp::Neg, DType::I32 | DType::U32) => {
                let u = self.vector(DType::U32, lanes);
                Some(format!("({ty})-({u})vx"))
            }
            (UnOp::Abs, DType::F32) => {
                let u = self.vector(DType::U32, lanes);
                Some(format!("({ty})(({u})vx & 0x7fffffffu)"))
            }
            _ => None,
        };
        let neon = for_neon(elem, lanes, || match (op, elem) {
            (UnOp::Neg, DType::F32) => Some("    return (gm_f32x4)((gm_u32x4)vx ^ 0x80000000u);\n".to_owned()),
            (UnOp::Floor | UnOp::Ceil | UnOp::Trunc | UnOp::Round, DType::F32) => Some(neon::rounding(op)),
            _ => None,
        });
        if neon.is_some() {
            self.vector(DType::U32, lanes);
            self.vector(DType::Bool, lanes);
        }
        let name = format!("gm_{}_{}", word(op), &ty["gm_".len()..]);
        self.lanewise(Lanewise { name, to: elem, from: &[elem], lanes, whole, neon }, each)
    }

    /// A shift of vectors by a constant that is less than their bits.
    pub(super) fn vector_shift(&mut self, op: BinOp, elem: DType, lanes: u16, by: u64, each: &str) -> String {
        let (ty, u) = (self.vector(elem, lanes), self.vector(DType::U32, lanes));
        let whole = native(elem).then(|| match op {
            BinOp::Shl => format!("({ty})(({u})vx << {by})"),
            _ => format!("vx >> {by}"),
        });
        let name = format!("gm_{}{by}_{}", bin_word(op), &ty["gm_".len()..]);
        self.lanewise(Lanewise { name, to: elem, from: &[elem], lanes, whole, neon: None }, each)
    }

    /// A two-operand operation on vectors; `each` is that on the scalars `x` and `y`.
    pub(super) fn vector_bin(&mut self, op: BinOp, elem: DType, lanes: u16, each: &str) -> String {
        let ty = self.vector(elem, lanes);
        let sign = match op {
            BinOp::Add => "+",
            BinOp::Sub => "-",
            BinOp::Mul => "*",
            BinOp::Div => "/",
            BinOp::And => "&",
            BinOp::Or => "|",
            BinOp::Xor => "^",
            _ => "",
        };
        let whole = match (op, elem) {
            (BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div, DType::F32) => Some(format!("vx {sign} vy")),
            (BinOp::Add | BinOp::Sub | BinOp::Mul, DType::I32 | DType::U32) => {
                let u = self.vector(DType::U32, lanes);
                Some(format!("({ty})(({u})vx {sign} ({u})vy)"))
            }
            (BinOp::And | BinOp::Or | BinOp::Xor, e) if native(e) => Some(format!("vx {sign} vy")),
            (BinOp::Min | BinOp::Max, DType::F32 | DType::I32 | DType::U32) => {
                let mask = self.vector(DType::Bool, lanes);
                let less = if op == BinOp::Min { "<" } else { ">" };
                let nan = if elem == DType::F32 { " | (vx != vx)" } else { "" };
                Some(format!("({ty})((({mask})vx & ((vx {less} vy){nan})) | (({mask})vy & ~((vx {less} vy){nan})))"))
            }
            _ => None,
        };
        let neon = for_neon(elem, lanes, || if elem == DType::F32 { neon::bin(op, &ty) } else { None });
        let name = format!("gm_{}_{}", bin_word(op), &ty["gm_".len()..]);
        self.lanewise(Lanewise { name, to: elem, from: &[elem, elem], lanes, whole, neon }, each)
    }

    /// A comparison of vectors; `each` is that on the scalars `x` and `y`.
    pub(super) fn vector_cmp(&mut self, op: Cmp, elem: DType, lanes: u16, each: &str) -> String {
        let (ty, mask) = (self.vector(elem, lanes), self.vector(DType::Bool, lanes));
        let whole = native(elem).then(|| format!("({mask})(vx {} vy)", cmp_sign(op)));
        let neon = for_neon(elem, lanes, || (elem == DType::F32).then(|| neon::cmp(op, &mask)));
        let name = format!("gm_{}_{}", cmp_word(op), &ty["gm_".len()..]);
        self.lanewise(Lanewise { name, to: DType::Bool, from: &[elem, elem], lanes, whole, neon }, each)
    }

    /// A choice between vectors.
    pub(super) fn vector_select(&mut self, elem: DType, lanes: u16) -> String {
        let (ty, mask) = (self.vector(elem, lanes), self.vector(DType::Bool, lanes));
        let whole = native(elem).then(|| format!("({ty})((vx & ({mask})vy) | (~vx & ({mask})vz))"));
        let name = format!("gm_select_{}", &ty["gm_".len()..]);
        let from = [DType::Bool, elem, elem];
        let neon = for_neon(elem, lanes, || Some(neon::select(&ty)));
        self.lanewise(Lanewise { name, to: elem, from: &from, lanes, whole, neon }, "x ? y : z")
    }

    /// A product of vectors added to.
    pub(super) fn vector_fma(&mut self, elem: DType, lanes: u16) -> String {
        let ty = self.vector(elem, lanes);
        let each = format!("{}(x, y, z)", self.fma(elem));
        let name = format!("gm_fma_{}", &ty["gm_".len()..]);
        // Where no instruction does both, vectors are multiplied and added as such.
        let whole = (elem == DType::F32).then(|| "vx * vy + vz".to_owned());
        let neon = for_neon(elem, lanes, || (elem == DType::F32).then(|| neon::fma(&ty)));
        self.lanewise(Lanewise { name, to: elem, from: &[elem; 3], lanes, whole, neon }, &each)
    }

    /// A conversion of vectors; `each` is that of the scalar `x`. `what` tells conversions apart.
    pub(super) fn vector_cast(&mut self, what: &str, to: DType, from: DType, lanes: u16, each: &str) -> String {
        let (source, target) = (self.vector(from, lanes), self.vector(to, lanes));
        let whole = match (what, to, from) {
            ("bits", ..) if native(to) && native(from) => Some(format!("({target})vx")),
            _ => None,
        };
        let neon = match what {
            "bits" => None,
            _ if lanes == neon::LANES => neon::cast(to, from, &target),
            _ => None,
        };
        if neon.is_some() {
            self.vector(DType::U32, lanes);
        }
        let name = format!("gm_{what}_{}_{}", &target["gm_".len()..], &source["gm_".len()..]);
        self.lanewise(Lanewise { name, to, from: &[from], lanes, whole, neon }, each)
    }
}
