//! The straight line that fits points best, by least squares in one pass.
//!
//! Means and products of deviations are updated with each point (Welford), so that 64-bit numbers
//! lose no precision in large sums.

/// A line that fits the points so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Regression {
    points: f64,
    mean_x: f64,
    mean_y: f64,
    /// Sum of products of the deviations of x with themselves.
    xx: f64,
    /// Sum of products of the deviations of x with those of y.
    xy: f64,
}

impl Regression {
    pub(super) fn add(&mut self, x: f64, y: f64) {
        self.points += 1.0;
        let deviation = x - self.mean_x;
        self.mean_x += deviation / self.points;
        self.mean_y += (y - self.mean_y) / self.points;
        self.xx += deviation * (x - self.mean_x);
        self.xy += deviation * (y - self.mean_y);
    }

    /// Returns slope and intercept. The slope is never negative; it is zero if all x are equal.
    pub(super) fn line(&self) -> (f64, f64) {
        let slope = if self.xx > 0.0 { (self.xy / self.xx).max(0.0) } else { 0.0 };
        (slope, self.mean_y - slope * self.mean_x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> (f64, f64) {
        let mut regression = Regression::default();
        for &(x, y) in points {
            regression.add(x, y);
        }
        regression.line()
    }

    #[test]
    fn lines_are_found() {
        assert_eq!(line(&[]), (0.0, 0.0));
        assert_eq!(line(&[(3.0, 7.0)]), (0.0, 7.0));
        assert_eq!(line(&[(3.0, 6.0), (3.0, 8.0)]), (0.0, 7.0));
        assert_eq!(line(&[(1.0, 1.0), (2.0, 3.0), (3.0, 5.0)]), (2.0, -1.0));
        // Descending points are fitted by their mean.
        assert_eq!(line(&[(0.0, 2.0), (1.0, 0.0)]), (0.0, 1.0));
    }

    #[test]
    fn large_numbers_keep_their_precision() {
        let far = 2.0_f64.powi(60);
        let line = line(&[(far, 0.0), (far + 4096.0, 16.0), (far + 8192.0, 32.0)]);
        assert_eq!(line, (1.0 / 256.0, -far / 256.0));
    }
}
