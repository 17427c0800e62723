//! The top model: which sub-model is responsible for a key (section 5.1).
//!
//! ```text
//! word 0    origin: the least key trained
//! word 1    slope f32 | intercept f32        position = slope * (key - origin) + intercept
//! ```
//!
//! The position is from 0 to 1; multiplied by the number of sub-models it is the sub-model's
//! number. It never decreases with increasing keys, so each sub-model is responsible for an
//! interval of keys.

use super::regression::Regression;

/// A top model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TopModel {
    origin: u64,
    slope: f32,
    intercept: f32,
}

const _: () = assert!(size_of::<TopModel>() as u64 == TopModel::BYTES);

impl TopModel {
    /// Bytes of a top model.
    pub(crate) const BYTES: u64 = 16;
    /// Words of a top model in the pool.
    pub(crate) const WORDS: usize = 2;

    /// Trains a model over keys with their positions among `total`, in ascending order of both. A
    /// sample of an index's keys is sufficient.
    pub(crate) fn train(keys: impl IntoIterator<Item = (u64, u64)>, total: u64) -> Self {
        let (mut regression, mut origin) = (Regression::default(), None);
        for (key, position) in keys {
            let origin = *origin.get_or_insert(key);
            regression.add(difference(key, origin), position as f64 / total.max(1) as f64);
        }
        let (slope, intercept) = regression.line();
        Self { origin: origin.unwrap_or(0), slope: slope as f32, intercept: intercept as f32 }
    }

    /// Reads a model from its words. Returns `None` if they are invalid.
    pub(crate) fn from_words([origin, line]: [u64; Self::WORDS]) -> Option<Self> {
        let (slope, intercept) = (f32::from_bits(line as u32), f32::from_bits((line >> 32) as u32));
        let is_line = slope.is_finite() && slope >= 0.0 && intercept.is_finite();
        is_line.then_some(Self { origin, slope, intercept })
    }

    pub(crate) fn words(&self) -> [u64; Self::WORDS] {
        [self.origin, u64::from(self.slope.to_bits()) | u64::from(self.intercept.to_bits()) << 32]
    }

    /// Returns the number of the sub-model that is responsible for a key: less than `submodels`,
    /// which is at least 1.
    pub(crate) fn predict(&self, key: u64, submodels: u32) -> u32 {
        let position = f64::from(self.slope) * difference(key, self.origin) + f64::from(self.intercept);
        // The cast saturates at zero and at the maximum of the type.
        ((position * f64::from(submodels)) as u32).min(submodels.saturating_sub(1))
    }

    /// Returns the first and the last key that a sub-model is responsible for. `None` if it is
    /// responsible for none.
    pub(crate) fn interval(&self, submodel: u32, submodels: u32) -> Option<(u64, u64)> {
        let low = self.least(submodel, submodels)?;
        let high = match self.least(submodel.checked_add(1)?, submodels) {
            Some(above) if above <= low => return None,
            Some(above) => above - 1,
            None => u64::MAX,
        };
        Some((low, high))
    }

    /// Returns the base of a sub-model. Keys are far from it only if they are far from each other,
    /// so 32 bits of slope and intercept suffice.
    pub(crate) fn base(&self, submodel: u32, submodels: u32) -> u64 {
        self.base_of(self.least(submodel, submodels).unwrap_or(u64::MAX))
    }

    /// The same for the sub-model that is responsible from a key on.
    pub(super) fn base_of(&self, low: u64) -> u64 {
        low.max(self.origin)
    }

    /// Returns the least key whose sub-model has this number or a greater one.
    fn least(&self, submodel: u32, submodels: u32) -> Option<u64> {
        let is_below = |key: u64| self.predict(key, submodels) < submodel;
        if !is_below(0) {
            return Some(0);
        }
        if is_below(u64::MAX) {
            return None;
        }
        // The inverse only has rounding errors: search around it in steps that double.
        let inverse =
            (f64::from(submodel) / f64::from(submodels) - f64::from(self.intercept)) / f64::from(self.slope);
        let guess = if inverse < 0.0 {
            self.origin.saturating_sub(-inverse as u64)
        } else {
            self.origin.saturating_add(inverse as u64)
        };
        let (mut below, mut found) = (0, u64::MAX);
        let mut step = 1;
        if is_below(guess) {
            below = guess;
            while below.checked_add(step).is_some_and(is_below) {
                below += step;
                step = step.saturating_mul(2);
            }
            found = below.saturating_add(step);
        } else {
            found = found.min(guess);
            while found.checked_sub(step).is_some_and(|key| !is_below(key)) {
                found -= step;
                step = step.saturating_mul(2);
            }
            below = below.max(found.saturating_sub(step));
        }
        while found - below > 1 {
            let middle = below + (found - below) / 2;
            if is_below(middle) { below = middle } else { found = middle }
        }
        Some(found)
    }
}

/// Returns the difference of two keys.
pub(super) fn difference(key: u64, base: u64) -> f64 {
    if key >= base { (key - base) as f64 } else { -((base - key) as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = u64> {
        let end = prop_oneof![Just(0), Just(u64::MAX), Just(1), Just(u64::MAX - 1), Just(1 << 63)];
        prop_oneof![3 => any::<u64>(), 1 => end, 2 => 0_u64..1000]
    }

    /// Models of any valid words, half of them of lines as keys have.
    fn model() -> impl Strategy<Value = TopModel> {
        let trained = proptest::collection::btree_set(key(), 0..20).prop_map(|keys| {
            let total = keys.len() as u64;
            TopModel::train(keys.into_iter().zip(0..), total)
        });
        let random = any::<[u64; 2]>().prop_filter_map("a model", TopModel::from_words);
        prop_oneof![trained, random]
    }

    proptest! {
        #[test]
        fn predictions_are_in_bounds_and_never_fall(
            model in model(),
            mut keys in proptest::collection::vec(key(), 2..50),
            submodels in 1_u32..,
        ) {
            keys.sort_unstable();
            let mids: Vec<_> = keys.iter().map(|&key| model.predict(key, submodels)).collect();
            prop_assert!(mids.is_sorted() && mids.iter().all(|&mid| mid < submodels));
            prop_assert_eq!(TopModel::from_words(model.words()), Some(model));
        }

        #[test]
        fn intervals_are_where_predictions_change(model in model(), key in key(), submodels in 1_u32..) {
            let mid = model.predict(key, submodels);
            let (low, high) = model.interval(mid, submodels).unwrap();
            prop_assert!(low <= key && key <= high);
            prop_assert_eq!(model.predict(low, submodels), mid);
            prop_assert_eq!(model.predict(high, submodels), mid);
            prop_assert!(low == 0 || model.predict(low - 1, submodels) < mid);
            prop_assert!(high == u64::MAX || model.predict(high + 1, submodels) > mid);
        }

        #[test]
        fn intervals_cover_all_keys_once(model in model(), submodels in 1_u32..40) {
            let mut next = Some(0);
            for (low, high) in (0..submodels).filter_map(|mid| model.interval(mid, submodels)) {
                prop_assert_eq!(Some(low), next);
                next = high.checked_add(1);
            }
            prop_assert_eq!(next, None);
        }
    }

    #[test]
    fn words_without_a_line_are_not_a_model() {
        for (slope, intercept) in [(f32::NAN, 0.0), (-1.0, 0.0), (f32::INFINITY, 0.0), (1.0, f32::NAN)] {
            let model = TopModel { origin: 7, slope, intercept };
            assert_eq!(TopModel::from_words(model.words()), None);
        }
    }

    #[test]
    fn keys_that_are_equal_or_none_go_to_one_submodel() {
        let none = TopModel::train([], 0);
        let equal = TopModel::train([(9, 0), (9, 1), (9, 2)], 3);
        for model in [none, equal] {
            let mid = model.predict(9, 100);
            assert_eq!(model.interval(mid, 100), Some((0, u64::MAX)));
            assert_eq!((model.predict(0, 100), model.predict(u64::MAX, 100)), (mid, mid));
        }
    }
}
