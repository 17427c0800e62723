//! Numbers as stated in a paper's text, numbers as measured, and their distance.

use std::fmt;

/// A quantity as a text states it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stated {
    /// About this much.
    About(f64),
    /// At most this much, over workloads and competitors.
    UpTo(f64),
    /// Within these bounds, over workloads and competitors.
    Between(f64, f64),
    /// Less than this.
    Below(f64),
}

/// A measured quantity: the least and the most, which are equal for a single number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::About(value) => f.write_str(&number(*value)),
            Self::UpTo(most) => write!(f, "up to {}", number(*most)),
            Self::Between(least, most) => write!(f, "{} to {}", number(*least), number(*most)),
            Self::Below(bound) => write!(f, "below {}", number(*bound)),
        }
    }
}

impl Stated {
    /// Returns the number, or the bound; the upper one of two.
    pub(crate) fn bound(self) -> f64 {
        match self {
            Self::About(value) | Self::UpTo(value) | Self::Between(_, value) | Self::Below(value) => value,
        }
    }

    /// Returns the numbers to draw next to ours, each with a label: two if either is a range.
    pub(crate) fn next_to(self, ours: Span) -> Vec<(&'static str, f64, f64)> {
        match self {
            Self::Between(least, most) => vec![(" least", least, ours.least), (" most", most, ours.most)],
            Self::About(value) if !ours.is_one() => {
                vec![(" least", value, ours.least), (" most", value, ours.most)]
            }
            Self::About(value) | Self::UpTo(value) | Self::Below(value) => vec![("", value, ours.most)],
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_one() {
            f.write_str(&number(self.most))
        } else {
            write!(f, "{} to {}", number(self.least), number(self.most))
        }
    }
}

impl Span {
    /// Returns the span of one number.
    pub(crate) fn one(value: f64) -> Self {
        Self { least: value, most: value }
    }

    /// Returns the span of several numbers; `None` without any.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        values
            .into_iter()
            .map(Self::one)
            .reduce(|all, next| Self { least: all.least.min(next.least), most: all.most.max(next.most) })
    }

    /// Returns whether its numbers are printed alike.
    fn is_one(self) -> bool {
        number(self.least) == number(self.most)
    }

    /// Returns the distance of our number from the stated one: the factor by which the stated one
    /// would have to be multiplied, as a percentage.
    pub(crate) fn deviation(self, stated: Stated) -> String {
        match stated {
            Stated::About(value) => percent(f64::midpoint(self.least, self.most), value),
            Stated::UpTo(most) => percent(self.most, most),
            Stated::Between(least, most) => {
                format!("{} and {}", percent(self.least, least), percent(self.most, most))
            }
            Stated::Below(bound) => {
                if self.most < bound { "reproduced" } else { "not reproduced" }.to_owned()
            }
        }
    }
}

/// Returns our number relative to theirs: `+3%`, and beyond a factor of two `×2.40`.
fn percent(ours: f64, theirs: f64) -> String {
    let ratio = ours / theirs;
    if (0.5..=2.0).contains(&ratio) {
        format!("{:+.0}%", (ratio - 1.0) * 100.0)
    } else {
        format!("×{ratio:.2}")
    }
}

/// Returns a number with the digits that matter.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 0.01 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if digits > 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_drawn_as_two_numbers() {
        let span = Span { least: 1.0, most: 3.0 };
        assert_eq!(Stated::Between(2.0, 4.0).next_to(span), [(" least", 2.0, 1.0), (" most", 4.0, 3.0)]);
        assert_eq!(Stated::About(2.0).next_to(span), [(" least", 2.0, 1.0), (" most", 2.0, 3.0)]);
        assert_eq!(Stated::About(2.0).next_to(Span::one(1.0)), [("", 2.0, 1.0)]);
        assert_eq!(Stated::UpTo(2.0).next_to(span), [("", 2.0, 3.0)]);
    }

    #[test]
    fn distances_read_well() {
        assert_eq!(Span::one(3.9).deviation(Stated::About(3.9)), "+0%");
        assert_eq!(Span::one(3.0).deviation(Stated::About(4.0)), "-25%");
        assert_eq!(Span::one(9.0).deviation(Stated::UpTo(3.0)), "×3.00");
        let span = Span::of([2.0, 1.3, 5.8]).unwrap();
        assert_eq!(span.deviation(Stated::Between(1.3, 5.8)), "+0% and +0%");
        assert_eq!(span.to_string(), "1.3 to 5.8");
        assert_eq!(Span::one(2.0).deviation(Stated::Below(3.0)), "reproduced");
        assert_eq!(Span::one(3.0).deviation(Stated::Below(3.0)), "not reproduced");
        assert_eq!(Span::of([]), None);
        assert_eq!(Stated::UpTo(23.6).to_string(), "up to 23.6");
        assert_eq!([6500.0, 16.8, 0.39, 0.0012].map(number), ["6500", "16.8", "0.39", "0.0012"]);
    }
}
