//! The kernels' results, computed on the CPU with the same bits: fused multiply-adds in the same order.

/// MurmurHash3's finalizer, as in the kernel `fill_hash`.
pub fn hash32(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ x >> 16
}

/// So many numbers in [-1, 1) times `scale`, which depend on the seed alone.
pub fn random_floats(seed: u32, count: usize, scale: f32) -> Vec<f32> {
    let base = seed.wrapping_mul(0x9e37_79b9);
    (0..count as u32).map(|i| ((hash32(base.wrapping_add(i)) >> 8) as f32 / 8_388_608.0 - 1.0) * scale).collect()
}

/// How a factor of `matmul` lies in memory; the bits are the kernel's `flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// True if the left factor is stored transposed.
    pub left_transposed: bool,
    /// True if the right factor is stored transposed.
    pub right_transposed: bool,
}

impl Stored {
    /// Both factors by rows.
    pub const ROWS: Self = Self { left_transposed: false, right_transposed: false };
    /// The left factor transposed.
    pub const LEFT: Self = Self { left_transposed: true, right_transposed: false };
    /// The right factor transposed.
    pub const RIGHT: Self = Self { left_transposed: false, right_transposed: true };

    /// The kernel's parameter.
    pub fn flags(self) -> u32 {
        u32::from(self.left_transposed) | u32::from(self.right_transposed) << 1
    }
}

/// The product of an m x k and a k x n matrix.
pub fn matmul(a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize), stored: Stored) -> Vec<f32> {
    let left = |i: usize, p: usize| if stored.left_transposed { a[p * m + i] } else { a[i * k + p] };
    let right = |p: usize, j: usize| if stored.right_transposed { b[j * k + p] } else { b[p * n + j] };
    (0..m * n).map(|at| (0..k).fold(0.0f32, |sum, p| left(at / n, p).mul_add(right(p, at % n), sum))).collect()
}

/// The positive part of each element.
pub fn relu(values: &[f32]) -> Vec<f32> {
    values.iter().map(|&x| if x > 0.0 { x } else { 0.0 }).collect()
}

/// The gradient `dy` where `y`, the result of `relu`, is positive.
pub fn relu_grad(y: &[f32], dy: &[f32]) -> Vec<f32> {
    y.iter().zip(dy).map(|(&y, &dy)| if y > 0.0 { dy } else { 0.0 }).collect()
}

/// Adds `a * x` to `y`.
pub fn axpy(y: &mut [f32], x: &[f32], a: f32) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = a.mul_add(x, *y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_the_same_however_its_factors_are_stored() {
        let (m, n, k) = (2, 3, 4);
        let a = random_floats(1, m * k, 1.0);
        let b = random_floats(2, k * n, 1.0);
        let a_transposed: Vec<f32> = (0..m * k).map(|at| a[at % m * k + at / m]).collect();
        let b_transposed: Vec<f32> = (0..k * n).map(|at| b[at % k * n + at / k]).collect();
        let plain = matmul(&a, &b, (m, n, k), Stored::ROWS);
        assert_eq!(plain, matmul(&a_transposed, &b, (m, n, k), Stored::LEFT));
        assert_eq!(plain, matmul(&a, &b_transposed, (m, n, k), Stored::RIGHT));
        let both = Stored { left_transposed: true, right_transposed: true };
        assert_eq!(plain, matmul(&a_transposed, &b_transposed, (m, n, k), both));
    }

    #[test]
    fn a_gradient_passes_only_where_the_output_is_positive() {
        let y = relu(&[-1.0, 0.0, 2.0]);
        assert_eq!(y, [0.0, 0.0, 2.0]);
        assert_eq!(relu_grad(&y, &[5.0, 6.0, 7.0]), [0.0, 0.0, 7.0]);
    }
}
