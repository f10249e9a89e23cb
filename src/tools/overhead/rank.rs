//! Tests whether two sets of samples differ significantly.
//!
//! The two-sided rank test of Mann and Whitney ("On a Test of Whether one of Two Random Variables
//! is Stochastically Larger than the Other", Annals of Mathematical Statistics 18, 1947), with the
//! normal approximation corrected for ties and continuity. It makes no assumption about the
//! distribution, so outliers have little influence. It does assume independent samples: slow drift
//! makes small differences look more significant than they are.

/// Returns the p-value, from 0 to 1: the probability that two sets from one source are at least
/// this different. With fewer than 5 samples in either it is 1.
pub(super) fn chance(a: &[f64], b: &[f64]) -> f64 {
    if a.len().min(b.len()) < 5 {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> = a.iter().map(|value| (*value, true)).collect();
    all.extend(b.iter().map(|value| (*value, false)));
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (mut ranks, mut ties, mut from) = (0.0, 0.0, 0);
    while from < all.len() {
        let same = all[from..].iter().take_while(|other| other.0 == all[from].0).count();
        // Ties share the mean of their ranks, which begin at 1.
        let rank = from as f64 + (same as f64 + 1.0) / 2.0;
        ranks += rank * all[from..from + same].iter().filter(|(_, is_a)| *is_a).count() as f64;
        ties += (same as f64).powi(3) - same as f64;
        from += same;
    }
    let (n, m) = (a.len() as f64, b.len() as f64);
    let u = ranks - n * (n + 1.0) / 2.0;
    let both = n + m;
    let variance = n * m / 12.0 * (both + 1.0 - ties / (both * (both - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let apart = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * above(apart)).min(1.0)
}

/// Returns the upper tail of the normal distribution for `z` ≥ 0: formula 26.2.17 of Abramowitz and
/// Stegun, Handbook of Mathematical Functions, with an error below 7.5e-8.
fn above(z: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let polynomial = COEFFICIENTS.iter().rev().fold(0.0, |sum, of| (sum + of) * t);
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (density * polynomial).clamp(0.0, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_by_hand() {
        let x = [19.0, 22.0, 16.0, 29.0, 24.0, 24.0];
        let y = [20.0, 11.0, 17.0, 12.0, 16.0];
        // Ranks of x: 3.5, 6, 8, 9.5, 9.5 and 11; so U = 26.5 with a mean of 15, and two ties of
        // two.
        let z: f64 = (26.5_f64 - 15.0 - 0.5) / (30.0_f64 * (1.0 - 12.0 / (11.0 * 120.0))).sqrt();
        assert!((chance(&x, &y) - 2.0 * above(z)).abs() < 1e-9, "{}", chance(&x, &y));
        assert!((chance(&x, &y) - chance(&y, &x)).abs() < 1e-12, "it has no side");
        assert!((above(1.959_964) - 0.025).abs() < 1e-6 && (above(0.0) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn equal_samples_are_chance_and_different_ones_are_not() {
        let low: Vec<f64> = (0..30).map(f64::from).collect();
        let high: Vec<f64> = (100..130).map(f64::from).collect();
        assert!(chance(&low, &low) > 0.9);
        assert!(chance(&low, &high) < 1e-8);
        assert_eq!(chance(&[0.0; 30], &[0.0; 30]), 1.0, "nothing but ties");
        assert_eq!(chance(&[0.0; 4], &high), 1.0, "too few");
    }
}
