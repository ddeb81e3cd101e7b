//! Helpers of floating point: what a mathematical library would be asked for.

use super::helpers::{Helpers, word};
use super::literal::{modular_type, scalar_type};
use crate::dtype::DType;
use crate::kernel::ir::UnOp;

/// The bit layout of a float type, as C constants.
struct Layout {
    /// Stored bits of the significand.
    fraction: u32,
    /// Greatest exponent field.
    top: u32,
    /// What exponents are biased by.
    bias: u32,
    /// Digits after which constants of the bits' type end.
    suffix: fn(u64) -> String,
}

impl Layout {
    fn of(elem: DType) -> Layout {
        match elem {
            DType::F64 => Layout { fraction: 52, top: 2047, bias: 1023, suffix: |bits| format!("UINT64_C({bits:#x})") },
            _ => Layout { fraction: 23, top: 255, bias: 127, suffix: |bits| format!("{bits:#x}u") },
        }
    }

    fn sign(&self) -> String {
        (self.suffix)(u64::from(self.top + 1) << self.fraction)
    }

    /// Everything but the sign.
    fn rest(&self) -> String {
        (self.suffix)((u64::from(self.top + 1) << self.fraction) - 1)
    }

    fn infinity(&self) -> String {
        (self.suffix)(u64::from(self.top) << self.fraction)
    }

    fn nan(&self) -> String {
        (self.suffix)((u64::from(self.top) << self.fraction) | 1 << (self.fraction - 1))
    }

    /// The leading bit of a significand.
    fn hidden(&self) -> String {
        (self.suffix)(1 << self.fraction)
    }

    /// All other bits of a significand.
    fn below(&self) -> String {
        (self.suffix)((1 << self.fraction) - 1)
    }
}

impl Helpers {
    fn float_helper(&mut self, name: &str, elem: DType, params: &str, body: &str) -> String {
        let ty = scalar_type(elem);
        let params = params.replace("T ", &format!("{ty} "));
        self.ask(name, |_| format!("GM_INLINE {ty} {name}({params})\n{{\n{body}}}\n"));
        name.to_owned()
    }

    pub(super) fn float_abs(&mut self, elem: DType) -> String {
        let (bits_of, of_bits) = (self.bits_of(elem), self.of_bits(elem));
        let body = format!("    return {of_bits}({bits_of}(x) & {});\n", Layout::of(elem).rest());
        self.float_helper(&format!("gm_abs_{elem}"), elem, "T x", &body)
    }

    /// `x` with the sign of `y`.
    fn with_sign(&mut self, elem: DType) -> String {
        let (bits_of, of_bits) = (self.bits_of(elem), self.of_bits(elem));
        let l = Layout::of(elem);
        let body = format!("    return {of_bits}(({bits_of}(x) & {}) | ({bits_of}(y) & {}));\n", l.rest(), l.sign());
        self.float_helper(&format!("gm_sign_{elem}"), elem, "T x, T y", &body)
    }

    /// Rounding to integers. Numbers from `1 << fraction` on are integers; adding that to a smaller one rounds it to the nearest,
    /// which is then set right.
    pub(super) fn rounding(&mut self, op: UnOp, elem: DType) -> String {
        let (abs, with_sign) = (self.float_abs(elem), self.with_sign(elem));
        let (ty, large) = match elem {
            DType::F64 => ("double", "4503599627370496.0"),
            _ => ("float", "8388608.0f"),
        };
        let adjust = match op {
            UnOp::Floor => format!("    r = {with_sign}(r, x);\n    if (r > x)\n        r -= 1;\n"),
            UnOp::Ceil => format!("    r = {with_sign}(r, x);\n    if (r < x)\n        r += 1;\n"),
            UnOp::Trunc => "    if (r > a)\n        r -= 1;\n".to_owned(),
            _ => String::new(),
        };
        let body = format!(
            "    const {ty} a = {abs}(x);\n    {ty} r;\n    if (!(a < {large}))\n        return x;\n    r = (a + {large}) - \
             {large};\n{adjust}    return {with_sign}(r, x);\n"
        );
        self.float_helper(&format!("gm_{}_{elem}", word(op)), elem, "T x", &body)
    }

    /// Square root: the instruction where there is one, else bit by bit.
    pub(super) fn sqrt(&mut self, elem: DType) -> String {
        let soft = self.soft_sqrt(elem);
        let (arm, flen, x86, riscv, a64, constraint) = match elem {
            DType::F64 => ("8", "64", "sqrtsd", "fsqrt.d", "fsqrt %d0, %d1", ("vsqrt.f64 %P0, %P1", "w")),
            _ => ("4", "32", "sqrtss", "fsqrt.s", "fsqrt %s0, %s1", ("vsqrt.f32 %0, %1", "t")),
        };
        let (ty, (vfp, register)) = (scalar_type(elem), constraint);
        let body = format!(
            "#if defined(__GNUC__) && defined(__ARM_FP) && !defined(__aarch64__) && (__ARM_FP & {arm})
    {ty} r;
    __asm__(\"{vfp}\" : \"={register}\"(r) : \"{register}\"(x));
    return r;
#elif defined(__GNUC__) && defined(__aarch64__)
    {ty} r;
    __asm__(\"{a64}\" : \"=w\"(r) : \"w\"(x));
    return r;
#elif defined(__GNUC__) && defined(__riscv_flen) && __riscv_flen >= {flen}
    {ty} r;
    __asm__(\"{riscv} %0, %1\" : \"=f\"(r) : \"f\"(x));
    return r;
#elif defined(__GNUC__) && defined(__SSE2__)
    {ty} r;
    __asm__(\"{x86} %1, %0\" : \"=x\"(r) : \"x\"(x));
    return r;
#else
    return {soft}(x);
#endif
"
        );
        self.float_helper(&format!("gm_sqrt_{elem}"), elem, "T x", &body)
    }

    /// Digit by digit: two bits of the radicand for each bit of the root, one bit more than the result has.
    fn soft_sqrt(&mut self, elem: DType) -> String {
        let (bits_of, of_bits) = (self.bits_of(elem), self.of_bits(elem));
        let (l, ty, u) = (Layout::of(elem), scalar_type(elem), modular_type(elem));
        let name = format!("gm_soft_sqrt_{elem}");
        let (fraction, bias, digits) = (l.fraction, l.bias, l.fraction + 2);
        let (infinity, nan, hidden, below) = (l.infinity(), l.nan(), l.hidden(), l.below());
        let sign = l.sign();
        self.ask(&name, |_| {
            format!(
                "static inline {ty} {name}({ty} x)
{{
    {u} b = {bits_of}(x), m = b & {below}, root = 0, rest = 0;
    int e = (int)(b >> {fraction}), i;
    if (b == 0 || b == {sign} || b == {infinity})
        return x;
    if (b > {infinity})
        return {of_bits}({nan});
    if (e)
        m |= {hidden};
    else
        for (e = 1; !(m & {hidden}); e--)
            m <<= 1;
    e -= {bias};
    if (e & 1) {{
        m <<= 1;
        e -= 1;
    }}
    m <<= {pad};
    for (i = 0; i < {digits}; i++) {{
        rest = (rest << 2) | (m >> {shift} & 3);
        m <<= 2;
        root <<= 1;
        if (rest > root << 1) {{
            rest -= (root << 1) + 1;
            root += 1;
        }}
    }}
    root = (root + 1) >> 1;
    return {of_bits}((({u})(e / 2 + {bias}) << {fraction}) + root - {hidden});
}}
",
                // With the exponent made even, the significand has two bits more than the stored ones. They begin at the top.
                pad = 8 * elem.size() as u32 - (fraction + 2),
                shift = 8 * elem.size() as u32 - 2,
            )
        });
        name
    }

    /// The remainder with the sign of the dividend, exact: long division of the significands.
    pub(super) fn float_rem(&mut self, elem: DType) -> String {
        let (bits_of, of_bits) = (self.bits_of(elem), self.of_bits(elem));
        let (l, ty, u) = (Layout::of(elem), scalar_type(elem), modular_type(elem));
        let name = format!("gm_rem_{elem}");
        let (fraction, sign, rest, infinity) = (l.fraction, l.sign(), l.rest(), l.infinity());
        let (nan, hidden, below) = (l.nan(), l.hidden(), l.below());
        self.ask(&name, |_| {
            format!(
                "static inline {ty} {name}({ty} x, {ty} y)
{{
    const {u} sign = {bits_of}(x) & {sign}, a = {bits_of}(x) & {rest}, b = {bits_of}(y) & {rest};
    int ea = (int)(a >> {fraction}), eb = (int)(b >> {fraction});
    {u} ma = a & {below}, mb = b & {below};
    if (b == 0 || a >= {infinity} || b > {infinity})
        return {of_bits}({nan});
    if (a < b)
        return x;
    if (ea)
        ma |= {hidden};
    else
        ea = 1;
    if (eb)
        mb |= {hidden};
    else
        eb = 1;
    for (ma %= mb; ea > eb; ea--) {{
        ma <<= 1;
        if (ma >= mb)
            ma -= mb;
    }}
    if (ma == 0)
        return {of_bits}(sign);
    for (; ma < {hidden} && eb > 1; eb--)
        ma <<= 1;
    if (ma >= {hidden})
        ma += ({u})(eb - 1) << {fraction};
    return {of_bits}(sign | ma);
}}
"
            )
        });
        name
    }

    /// A product added to, with one rounding where the processor does that.
    pub(super) fn fma(&mut self, elem: DType) -> String {
        let (fast, builtin) = match elem {
            DType::F64 => {
                ("defined(__GNUC__) && (defined(__FP_FAST_FMA) || (GM_FMA && (__ARM_FP & 8)))", "__builtin_fma")
            }
            _ => ("GM_FMA", "__builtin_fmaf"),
        };
        let body = format!("#if {fast}\n    return {builtin}(x, y, z);\n#else\n    return x * y + z;\n#endif\n");
        self.float_helper(&format!("gm_fma_{elem}"), elem, "T x, T y, T z", &body)
    }

    /// A half type's bits as `float`.
    pub(super) fn of_half(&mut self, half: DType) -> String {
        let of_bits = self.of_bits(DType::F32);
        let name = format!("gm_f32_of_{half}");
        let body = match half {
            DType::BF16 => format!("    return {of_bits}((uint32_t)h << 16);\n"),
            _ => format!(
                "    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3ffu;
    if (e == 31)
        return {of_bits}(sign | 0x7f800000u | m << 13);
    if (e == 0)
        return sign ? -((float)m * 0x1p-24f) : (float)m * 0x1p-24f;
    return {of_bits}(sign | (e + 112u) << 23 | m << 13);
"
            ),
        };
        self.ask(&name, |_| format!("GM_INLINE float {name}(uint16_t h)\n{{\n{body}}}\n"));
        name
    }

    /// A `float` rounded to a half type's bits.
    pub(super) fn half_of(&mut self, half: DType) -> String {
        let bits_of = self.bits_of(DType::F32);
        let name = format!("gm_{half}_of_f32");
        let body = match half {
            DType::BF16 => format!(
                "    const uint32_t b = {bits_of}(x);
    if ((b & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(b >> 16 | 0x40u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
"
            ),
            _ => format!(
                "    const uint32_t b = {bits_of}(x), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
    uint32_t m, shift, r, rest, half;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (a >= 0x38800000u)
        return (uint16_t)(sign | (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13);
    if (a < 0x33000000u)
        return (uint16_t)sign;
    m = (a & 0x7fffffu) | 0x800000u;
    shift = 126u - (a >> 23);
    r = m >> shift;
    half = 1u << (shift - 1u);
    rest = m & (half * 2u - 1u);
    if (rest > half || (rest == half && (r & 1u)))
        r += 1u;
    return (uint16_t)(sign | r);
"
            ),
        };
        self.ask(&name, |_| format!("GM_INLINE uint16_t {name}(float x)\n{{\n{body}}}\n"));
        name
    }

    /// A `double` as the `float` next to it whose last bit is set, if it is none itself: rounding that to a half type gives the
    /// same as rounding the `double`.
    pub(super) fn round_to_odd(&mut self) -> String {
        let (bits_of, of_bits) = (self.bits_of(DType::F32), self.of_bits(DType::F32));
        let abs = self.float_abs(DType::F64);
        let name = "gm_odd_f32";
        self.ask(name, |_| {
            format!(
                "GM_INLINE float {name}(double x)
{{
    const float near = (float)x;
    const double back = (double)near;
    if (back == x || x != x)
        return near;
    return {of_bits}(({bits_of}(near) - ({abs}(back) > {abs}(x))) | 1u);
}}
"
            )
        });
        name.to_owned()
    }
}
