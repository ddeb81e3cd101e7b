//! Functions that the plan's function calls, as C text.

/// Functions of the plan that take more than an operator. Those with an address as the last operand say whether the result
/// fits.
pub(super) const FUNCTIONS: &[(&str, &str)] = &[
    (
        "plan_add",
        "static int plan_add(int64_t a, int64_t b, int64_t *r)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b)
        return 0;
    *r = a + b;
    return 1;
}
",
    ),
    (
        "plan_sub",
        "static int plan_sub(int64_t a, int64_t b, int64_t *r)
{
    if (b > 0 ? a < INT64_MIN + b : a > INT64_MAX + b)
        return 0;
    *r = a - b;
    return 1;
}
",
    ),
    (
        "plan_mul",
        "static int plan_mul(int64_t a, int64_t b, int64_t *r)
{
    if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
              : (b > 0 ? a < INT64_MIN / b : a != 0 && b < INT64_MAX / a))
        return 0;
    *r = a * b;
    return 1;
}
",
    ),
    (
        "plan_div",
        "/* `up` and `down` say how a quotient with and without sign is rounded away from zero. */
static int plan_div(int64_t a, int64_t b, int up, int down, int64_t *r)
{
    if (b == 0) {
        *r = 0;
        return 1;
    }
    if (a == INT64_MIN && b == -1)
        return 0;
    *r = a / b;
    if (a % b != 0)
        *r += (a < 0) != (b < 0) ? -down : up;
    return 1;
}
",
    ),
    (
        "plan_rem",
        "static int64_t plan_rem(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}
",
    ),
    (
        "plan_mod",
        "static int64_t plan_mod(int64_t a, int64_t b)
{
    const int64_t r = b == 0 || b == -1 ? 0 : a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
",
    ),
    (
        "plan_view",
        "/* `bytes` bytes at `offset` of `room` bytes; -1: all that is left. */
static int plan_view(struct plan_view *v, uint8_t *base, size_t room, int64_t offset, int64_t bytes)
{
    if (offset < 0 || (uint64_t)offset > room)
        return 0;
    room -= (size_t)offset;
    if (bytes == -1)
        bytes = (int64_t)room;
    if (bytes < 0 || (uint64_t)bytes > room)
        return 0;
    v->p = base + offset;
    v->n = (size_t)bytes;
    return 1;
}
",
    ),
    (
        "plan_move",
        "static void plan_move(uint8_t *to, const uint8_t *from, size_t n)
{
    size_t i;
    if (to < from || to >= from + n)
        for (i = 0; i < n; i++)
            to[i] = from[i];
    else
        for (i = n; i > 0; i--)
            to[i - 1] = from[i - 1];
}
",
    ),
    (
        "plan_fill",
        "static void plan_fill(uint8_t *to, size_t n, uint64_t bits, size_t size)
{
    size_t i;
    for (i = 0; i < n - n % size; i++)
        to[i] = (uint8_t)(bits >> 8 * (i % size));
}
",
    ),
    (
        "plan_bytes",
        "/* Bytes of a tensor: 0 if a size is 0, whatever the others are. */
static int plan_bytes(const int64_t *dims, int rank, size_t size, size_t *bytes)
{
    int i;
    *bytes = size;
    for (i = 0; i < rank; i++)
        if (dims[i] == 0)
            *bytes = 0;
    for (i = 0; i < rank && *bytes > 0; i++) {
        if ((uint64_t)dims[i] > (SIZE_MAX / 2) / *bytes)
            return 0;
        *bytes *= (size_t)dims[i];
    }
    return 1;
}
",
    ),
];
