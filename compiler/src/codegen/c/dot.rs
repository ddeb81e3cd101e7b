//! Sums of products of small integers, and the words that hold them: lane by lane.

use super::helpers::Helpers;
use super::stmt::{Fx, Res};
use super::value::join;
use crate::kernel::ir::{Buf, Dot, Reg, Type};

impl Helpers {
    /// `z` plus the products of what two words hold; wraps.
    fn dot(&mut self, dot: Dot) -> &'static str {
        let (name, part, types, count, bits) = match dot {
            Dot::Bytes => ("gm_dot_bytes", "", ("uint8_t", "int8_t"), 4, 8),
            Dot::Words => ("gm_dot_words", "(uint32_t)", ("int16_t", "int16_t"), 2, 16),
        };
        self.ask(name, |_| {
            let (a, b) = types;
            let products: String = (0..count)
                .map(|k| {
                    let shift = k * bits;
                    format!("    sum += (uint32_t)({part}({a})(x >> {shift}) * ({b})(y >> {shift}));\n")
                })
                .collect();
            format!(
                "GM_INLINE int32_t {name}(uint32_t x, uint32_t y, int32_t z)\n{{\n    uint32_t sum = (uint32_t)z;\n\
                 {products}    return (int32_t)sum;\n}}\n"
            )
        });
        name
    }

    /// The word that four bytes are.
    fn word(&mut self) -> &'static str {
        let name = "gm_word";
        self.ask(name, |_| {
            format!(
                "GM_INLINE uint32_t {name}(const void *at)\n{{\n    const uint8_t *b = (const uint8_t *)at;\n    return \
                 (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;\n}}\n"
            )
        });
        name
    }
}

impl Fx<'_> {
    pub(super) fn dot(&mut self, ty: Type, dot: Dot, [a, b, c]: [Reg; 3]) -> Res<Vec<String>> {
        let (a, b, c) = (self.lanes(a)?, self.lanes(b)?, self.lanes(c)?);
        let name = self.h.dot(dot);
        let each = a.iter().zip(&b).zip(&c).map(|((a, b), c)| format!("{name}({a}, {b}, {c})"));
        let lanes: Vec<String> = each.collect();
        Ok(join(self.h, self.style, ty, &lanes))
    }

    pub(super) fn words(&mut self, ty: Type, buf: Buf, index: Reg, disp: i64) -> Res<Vec<String>> {
        let name = self.h.word();
        let mut lanes = vec![];
        for k in 0..i64::from(ty.lanes) {
            lanes.push(format!("{name}(&b{}[{}])", buf.0, self.place(index, disp.wrapping_add(4 * k))?));
        }
        Ok(join(self.h, self.style, ty, &lanes))
    }
}
