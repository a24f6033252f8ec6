"""Functions of float32 that are elsewhere computed in float64, which WGSL has not.

WGSL's own sine may be 2**-11 off, and says nothing of large arguments. Here an argument is multiplied by the bits of 2 / pi that matter
for it (M. Payne, R. Hanek, "Radian reduction for trigonometric functions", 1983), in integers. The polynomials are those of Cephes
(S. Moshier) for single precision; the remainder is a long division of the bits, which is exact. The logarithm near 1 and differences of
numbers close to each other keep their digits; powers are off by the rounding of the exponent, at most 1e-5 of the result.
"""

from __future__ import annotations

MATH: dict[str, tuple[str, tuple[str, ...]]] = {
    "turns": ("""\
const tw_two_over_pi = array<u32, 7>(0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0u);
struct tw_Product { high: u32, low: u32 }
fn tw_product(a: u32, b: u32) -> tw_Product {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let one = (a >> 16u) * (b & 0xffffu);
  let other = (a & 0xffffu) * (b >> 16u);
  let middle = (low >> 16u) + (one & 0xffffu) + (other & 0xffffu);
  let high = (a >> 16u) * (b >> 16u) + (one >> 16u) + (other >> 16u) + (middle >> 16u);
  return tw_Product(high, (middle << 16u) | (low & 0xffffu));
}
struct tw_Turns { rest: f32, quadrant: u32 }
fn tw_turns(x: f32) -> tw_Turns {
  let bits = bitcast<u32>(x) & 0x7fffffffu;
  if (bits < 0x3f490fdbu) { return tw_Turns(x, 0u); }
  let mantissa = (bits << 8u) | 0x80000000u;
  let exponent = (bits >> 23u) - 126u;
  let at = exponent >> 5u;
  let by = exponent & 31u;
  var high = 0u;
  if (at > 0u) { high = tw_two_over_pi[at - 1u]; }
  var middle = tw_two_over_pi[at];
  var low = tw_two_over_pi[at + 1u];
  if (by > 0u) {
    high = (high << by) | (middle >> (32u - by));
    middle = (middle << by) | (low >> (32u - by));
    low = (low << by) | (tw_two_over_pi[at + 2u] >> (32u - by));
  }
  let p = tw_product(mantissa, middle);
  let below = tw_product(mantissa, low).high;
  var fine = p.low + below;
  var coarse = p.high + select(0u, 1u, fine < below) + mantissa * high;
  var quadrant = coarse >> 30u;
  coarse = coarse & 0x3fffffffu;
  var negative = false;
  if ((coarse & 0x20000000u) != 0u) {
    quadrant = quadrant + 1u;
    negative = true;
    coarse = 0x40000000u - coarse - select(0u, 1u, fine != 0u);
    fine = 0u - fine;
  }
  let lead = countLeadingZeros(coarse | 1u);
  var top = coarse << lead;
  if (lead > 0u) { top = top | (fine >> (32u - lead)); }
  let part = f32(top) * bitcast<f32>((127u - lead) << 23u) * (1.57079637f * 0x1p-30f);
  if (x < 0f) { return tw_Turns(select(-part, part, negative), 0u - quadrant); }
  return tw_Turns(select(part, -part, negative), quadrant);
}
fn tw_sine_of(t: tw_Turns) -> f32 {
  let z = t.rest * t.rest;
  let sine = t.rest + t.rest * z * (-1.6666654611e-1f + z * (8.3321608736e-3f + z * -1.9515295891e-4f));
  let cosine = 1f - 0.5f * z + z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
  let value = select(sine, cosine, (t.quadrant & 1u) != 0u);
  return select(value, -value, (t.quadrant & 2u) != 0u);
}""", ()),
    "sin": ("""\
fn tw_sin(x: f32) -> f32 {
  if ((bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u) { return tw_number(0x7fc00000u); }
  return tw_sine_of(tw_turns(x));
}""", ("turns", "number")),
    "cos": ("""\
fn tw_cos(x: f32) -> f32 {
  if ((bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u) { return tw_number(0x7fc00000u); }
  let t = tw_turns(x);
  return tw_sine_of(tw_Turns(t.rest, t.quadrant + 1u));
}""", ("turns", "number")),
    "tan": ("fn tw_tan(x: f32) -> f32 { return tw_sin(x) / tw_cos(x); }", ("sin", "cos")),
    "atan": ("""\
fn tw_atan(x: f32) -> f32 {
  let a = abs(x);
  var base = 0f;
  var r = a;
  if (a > 2.414213562373095f) { base = 1.57079637f; r = -1f / a; }
  else if (a > 0.4142135623730950f) { base = 0.785398185f; r = (a - 1f) / (a + 1f); }
  let z = r * r;
  let p = (((8.05374449538e-2f * z - 1.38776856032e-1f) * z + 1.99777106478e-1f) * z - 3.33329491539e-1f) * z * r + r;
  if (tw_isnan(x)) { return x; }
  return tw_copysign(base + p, x);
}""", ("isnan", "copysign")),
    "atan2": ("""\
fn tw_atan2(y: f32, x: f32) -> f32 {
  if (tw_isnan(x) || tw_isnan(y)) { return tw_number(0x7fc00000u); }
  let a = abs(y);
  let b = abs(x);
  let inf_bits = 0x7f800000u;
  var angle = 0f;
  if (a == 0f) { angle = 0f; }
  else if (bitcast<u32>(a) == inf_bits && bitcast<u32>(b) == inf_bits) { angle = 0.785398185f; }
  else if (b == 0f || bitcast<u32>(a) == inf_bits) { angle = 1.57079637f; }
  else if (bitcast<u32>(b) != inf_bits) {
    let scale = select(1f, 0x1p-4f, max(a, b) > 0x1p+120f) * select(1f, 0x1p+24f, max(a, b) < 0x1p-100f);
    let up = a * scale;
    let across = b * scale;
    if (up > across) { angle = 1.57079637f - tw_atan(across / up); } else { angle = tw_atan(up / across); }
  }
  if ((bitcast<u32>(x) & 0x80000000u) != 0u) { angle = 3.14159274f - angle; }
  return tw_copysign(angle, y);
}""", ("atan", "isnan", "copysign", "number")),
    "asin": ("""\
fn tw_asin(x: f32) -> f32 {
  let a = abs(x);
  if (!(a <= 1f)) { return tw_number(0x7fc00000u); }
  var r = a;
  var z = a * a;
  if (a > 0.5f) { z = 0.5f * (1f - a); r = sqrt(z); }
  let p = ((((4.2163199048e-2f * z + 2.4181311049e-2f) * z + 4.5470025998e-2f) * z + 7.4953002686e-2f) * z + 1.6666752422e-1f) * z * r + r;
  return tw_copysign(select(p, 1.57079637f - 2f * p, a > 0.5f), x);
}""", ("number", "copysign")),
    "acos": ("""\
fn tw_acos(x: f32) -> f32 {
  if (x > 0.5f) { return 2f * tw_asin(sqrt(0.5f * (1f - x))); }
  if (x < -0.5f) { return 3.14159274f - 2f * tw_asin(sqrt(0.5f * (1f + x))); }
  return 1.57079637f - tw_asin(x);
}""", ("asin",)),
    "log": ("""\
fn tw_log(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if ((bits << 1u) == 0u) { return tw_number(0xff800000u); }
  if (bits >= 0x7f800000u) { return select(tw_number(0x7fc00000u), x, bits == 0x7f800000u || tw_isnan(x)); }
  let small = bits < 0x00800000u;
  let scaled = select(bits, bitcast<u32>(x * 0x1p+24f), small);
  var e = i32(scaled >> 23u) - 126 - select(0, 24, small);
  var m = bitcast<f32>((scaled & 0x007fffffu) | 0x3f000000u);
  if (m < 0.707106781f) { e = e - 1; m = m + m; }
  let f = tw_rounded(m - 1f);
  let z = f * f;
  let p = (((((((7.0376836292e-2f * f - 1.1514610310e-1f) * f + 1.1676998740e-1f) * f - 1.2420140846e-1f) * f + 1.4249322787e-1f) * f
    - 1.6668057665e-1f) * f + 2.0000714765e-1f) * f - 2.4999993993e-1f) * f + 3.3333331174e-1f;
  let whole = f32(e);
  return tw_rounded(f + tw_rounded(tw_rounded(p * f * z - 2.12194440e-4f * whole) - 0.5f * z)) + 0.693359375f * whole;
}""", ("number", "isnan", "rounded")),
    "log1p": ("""\
fn tw_log1p(x: f32) -> f32 {
  let u = tw_rounded(1f + x);
  if (u == 1f || bitcast<u32>(x) == 0x7f800000u) { return x; }
  return tw_log(u) * (x / (u - 1f));
}""", ("log",)),
    "cosh": ("""\
fn tw_cosh(x: f32) -> f32 {
  let half = exp(0.5f * min(abs(x), 180f));
  return select(0.5f * half * half + 0.5f / (half * half), x + x, tw_isnan(x));
}""", ("isnan",)),
    "sinh": ("""\
fn tw_sinh(x: f32) -> f32 {
  let z = x * x;
  if (tw_isnan(x)) { return x; }
  if (z < 1f) { return x + x * z * (0x1.555556p-3f + z * (0x1.111112p-7f + z * (0x1.a01a02p-13f + z * 0x1.71de3ap-19f))); }
  let half = exp(0.5f * min(abs(x), 180f));
  return tw_copysign(0.5f * half * half - 0.5f / (half * half), x);
}""", ("isnan", "copysign")),
    "asinh": ("""\
fn tw_asinh(x: f32) -> f32 {
  let a = abs(x);
  if (a > 0x1p+28f || tw_isnan(x)) { return tw_copysign(tw_log(a) + 0.693147182f, x); }
  return tw_copysign(tw_log1p(a + a * a / (1f + sqrt(a * a + 1f))), x);
}""", ("log1p", "isnan", "copysign")),
    "acosh": ("""\
fn tw_acosh(x: f32) -> f32 {
  if (!(x >= 1f)) { return tw_number(0x7fc00000u); }
  if (x > 0x1p+28f) { return tw_log(x) + 0.693147182f; }
  let t = x - 1f;
  return tw_log1p(t + sqrt(2f * t + t * t));
}""", ("log1p", "number")),
    "atanh": ("""\
fn tw_atanh(x: f32) -> f32 {
  let a = abs(x);
  if (!(a <= 1f)) { return tw_number(0x7fc00000u); }
  if (a == 1f) { return tw_copysign(tw_number(0x7f800000u), x); }
  return tw_copysign(0.5f * tw_log1p(2f * a / (1f - a)), x);
}""", ("log1p", "number", "copysign")),
    "hypot": ("""\
fn tw_hypot(x: f32, y: f32) -> f32 {
  let a = max(abs(x), abs(y));
  let b = min(abs(x), abs(y));
  if ((bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u || (bitcast<u32>(y) & 0x7fffffffu) == 0x7f800000u) { return tw_number(0x7f800000u); }
  if (tw_isnan(x) || tw_isnan(y)) { return tw_number(0x7fc00000u); }
  if (a == 0f) { return 0f; }
  let scale = select(select(1f, 0x1p+64f, a < 0x1p-60f), 0x1p-66f, a > 0x1p+60f);
  let back = select(select(1f, 0x1p-64f, a < 0x1p-60f), 0x1p+66f, a > 0x1p+60f);
  return sqrt(a * scale * (a * scale) + b * scale * (b * scale)) * back;
}""", ("isnan", "number")),
    "fmod": ("""\
fn tw_fmod(x: f32, y: f32) -> f32 {
  let sign = bitcast<u32>(x) & 0x80000000u;
  var a = bitcast<u32>(x) & 0x7fffffffu;
  var b = bitcast<u32>(y) & 0x7fffffffu;
  if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) { return tw_number(0x7fc00000u); }
  if (a < b) { return x; }
  var ea = i32(a >> 23u);
  var eb = i32(b >> 23u);
  a = a & 0x7fffffu;
  b = b & 0x7fffffu;
  if (ea == 0) { ea = 1; } else { a = a | 0x800000u; }
  if (eb == 0) { eb = 1; } else { b = b | 0x800000u; }
  for (; ea > eb; ea--) { a = (a % b) << 1u; }
  a = a % b;
  if (a == 0u) { return bitcast<f32>(sign); }
  let up = min(i32(countLeadingZeros(a)) - 8, eb - 1);
  a = a << u32(up);
  return bitcast<f32>(sign | select(a, (a & 0x7fffffu) | (u32(eb - up) << 23u), a >= 0x800000u));
}""", ("number",)),
    "pow": ("""\
fn tw_pow(x: f32, y: f32) -> f32 {
  let a = abs(x);
  let infinite = (bitcast<u32>(y) & 0x7fffffffu) == 0x7f800000u;
  if (y == 0f || x == 1f) { return 1f; }
  if (tw_isnan(x) || tw_isnan(y)) { return tw_number(0x7fc00000u); }
  if (infinite && a == 1f) { return 1f; }
  let whole = infinite || y == floor(y);
  let odd = !infinite && whole && abs(y) < 0x1p+24f && (i32(y) & 1) != 0;
  var value = 0f;
  if (a == 0f || bitcast<u32>(a) == 0x7f800000u || infinite) {
    value = select(0f, tw_number(0x7f800000u), (a > 1f) == (y > 0f));
  } else {
    let product = y * tw_log(a);
    let n = round(clamp(product * 1.44269502f, -200f, 200f));
    let rest = (product - n * 0.693359375f) + n * 2.12194440e-4f;
    value = tw_times_exp2(exp(clamp(rest, -100f, 100f)), n);
    if (product > 89f) { value = tw_number(0x7f800000u); }
    if (product < -104f) { value = 0f; }
  }
  if ((bitcast<u32>(x) & 0x80000000u) != 0u) {
    if (!whole && a != 0f && bitcast<u32>(a) != 0x7f800000u) { return tw_number(0x7fc00000u); }
    if (odd) { return -value; }
  }
  return value;
}""", ("log", "isnan", "number", "times_exp2")),
}  # fmt: skip
"""Each function by its name in C: its text, and what it calls."""
