//! Numbers as C's conversions truncate them.

/// Converts a number to an integer as x86-64 does: numbers out of range become the least integer.
pub(super) fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_become_the_least_integer() {
        assert_eq!(
            [3.99, -3.99, 1e30, f64::NAN, -9.3e18].map(truncated),
            [3, -3, i64::MIN, i64::MIN, i64::MIN]
        );
    }
}
