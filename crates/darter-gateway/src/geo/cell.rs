//! Cells: the earth is divided into halves by longitude and latitude in turn. The bits of the
//! halves that a position is in are its geohash.

/// Longitudes are between this and its negative.
pub(crate) const LONGITUDE_MAX: f64 = 180.0;
/// Latitudes are between this and its negative: those of the projection of web maps.
pub(crate) const LATITUDE_MAX: f64 = 85.051_128_78;
/// How often each of the two coordinates is halved for a score.
const STEPS: u32 = 26;
/// The bits of a longitude.
const LONGITUDES: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// The bits of a latitude.
const LATITUDES: u64 = LONGITUDES >> 1;
const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// A position in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    pub longitude: f64,
    pub latitude: f64,
}

/// A part of the earth: the bits of the halves, longitudes first, and how often it was halved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    bits: u64,
    steps: u32,
}

/// Spreads the bits of a number over the even bits.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, LATITUDES),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Collects the even bits.
fn collect(bits: u64) -> u32 {
    let mut bits = bits & LATITUDES;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// Returns the number of the part that a coordinate is in.
fn part(coordinate: f64, max: f64, steps: u32) -> u32 {
    let offset = (coordinate + max) / (max + max);
    (offset * (1_u64 << steps) as f64) as u32
}

/// Converts a score to bits as C does, also if the score is not that of a cell.
fn bits_of(score: f64) -> u64 {
    const LIMIT: f64 = (1_u64 << 63) as f64;
    let cast = |number: f64| if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN };
    if score < LIMIT { cast(score).cast_unsigned() } else { cast(score - LIMIT).cast_unsigned() ^ 1 << 63 }
}

impl Cell {
    /// Returns the smallest cell of a position.
    pub(crate) fn of(position: Position) -> Self {
        Self::around(position, STEPS)
    }

    /// Returns the cell of a position after some steps.
    pub(super) fn around(Position { longitude, latitude }: Position, steps: u32) -> Self {
        let longitude = spread(part(longitude, LONGITUDE_MAX, steps));
        Self { bits: longitude << 1 | spread(part(latitude, LATITUDE_MAX, steps)), steps }
    }

    /// Returns the smallest cell with a score.
    pub(crate) fn with_score(score: f64) -> Self {
        Self { bits: bits_of(score), steps: STEPS }
    }

    /// Returns the scores of all positions in the cell: the first, and the first after the last.
    pub(crate) fn scores(self) -> (u64, u64) {
        let shift = 2 * (STEPS - self.steps);
        (self.bits << shift, (self.bits + 1) << shift)
    }

    /// Returns the least and the greatest position of the cell.
    pub(super) fn corners(self) -> (Position, Position) {
        let parts = (1_u64 << self.steps) as f64;
        // In Redis's order, without fused operations, so that all digits are equal.
        #[allow(clippy::suboptimal_flops)]
        let coordinate = |part: u32, max: f64| -max + (f64::from(part) / parts) * (max + max);
        let (longitude, latitude) = (collect(self.bits >> 1), collect(self.bits));
        let corner = |longitude, latitude| Position {
            longitude: coordinate(longitude, LONGITUDE_MAX),
            latitude: coordinate(latitude, LATITUDE_MAX),
        };
        (corner(longitude, latitude), corner(longitude.wrapping_add(1), latitude.wrapping_add(1)))
    }

    /// Returns the position in the middle of the cell.
    pub(crate) fn position(self) -> Position {
        let (least, greatest) = self.corners();
        let middle = |one: f64, other: f64, max: f64| f64::midpoint(one, other).clamp(-max, max);
        Position {
            longitude: middle(least.longitude, greatest.longitude, LONGITUDE_MAX),
            latitude: middle(least.latitude, greatest.latitude, LATITUDE_MAX),
        }
    }

    /// Returns the cell some cells farther east and north, which begins again at the other end of
    /// the earth.
    pub(super) fn moved(self, east: i64, north: i64) -> Self {
        let all = u64::MAX >> (64 - 2 * self.steps);
        let move_by = |bits: u64, by: i64| spread(collect(bits).wrapping_add(by as u32));
        // The greatest coordinates come after the last cell, and stay there unless they are moved.
        let (mut longitude, mut latitude) = (self.bits & LONGITUDES, self.bits & LATITUDES);
        if east != 0 {
            longitude = move_by(self.bits >> 1, east) << 1 & all;
        }
        if north != 0 {
            latitude = move_by(self.bits, north) & all;
        }
        Self { bits: longitude | latitude, ..self }
    }

    /// Returns the standard geohash of the cell's middle, whose latitudes are between -90 and 90.
    pub(crate) fn text(self) -> [u8; 11] {
        let Position { longitude, latitude } = self.position();
        let longitude = spread(part(longitude, LONGITUDE_MAX, STEPS));
        let bits = longitude << 1 | spread(part(latitude, 90.0, STEPS));
        let mut text = [DIGITS[0]; 11];
        // There are bits for ten digits. As in Redis, the last one is always 0.
        for (at, digit) in text.iter_mut().take(10).enumerate() {
            *digit = DIGITS[(bits >> (2 * STEPS as usize - (at + 1) * 5)) as usize & 0x1f];
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_position_is_in_its_cells(
            longitude in -180.0..180.0,
            latitude in -85.05..85.05,
            steps in 1_u32..=26,
        ) {
            let position = Position { longitude, latitude };
            let cell = Cell::around(position, steps);
            let (least, greatest) = cell.corners();
            prop_assert!(least.longitude <= longitude && longitude <= greatest.longitude);
            prop_assert!(least.latitude <= latitude && latitude <= greatest.latitude);
            let (first, end) = cell.scores();
            let score = Cell::of(position).scores().0;
            prop_assert!((first..end).contains(&score));
            prop_assert_eq!(Cell::with_score(score as f64), Cell::of(position));
        }

        #[test]
        fn neighbours_touch(longitude in -177.0..177.0, latitude in -84.0..84.0, steps in 8_u32..=26) {
            let cell = Cell::around(Position { longitude, latitude }, steps);
            let (least, greatest) = cell.corners();
            let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
            prop_assert!(near(cell.moved(1, 0).corners().0.longitude, greatest.longitude));
            prop_assert!(near(cell.moved(0, 1).corners().0.latitude, greatest.latitude));
            prop_assert!(near(cell.moved(-1, -1).corners().1.longitude, least.longitude));
            prop_assert!(near(cell.moved(-1, -1).corners().1.latitude, least.latitude));
            prop_assert_eq!(cell.moved(1, -1).moved(-1, 1), cell);
        }

        #[test]
        fn scores_that_are_no_cells_have_positions(score: f64) {
            let Position { longitude, latitude } = Cell::with_score(score).position();
            prop_assert!(longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX);
        }
    }

    #[test]
    fn cells_at_the_end_of_the_earth_have_neighbours_at_its_beginning() {
        let cell = Cell::around(Position { longitude: 179.9, latitude: 0.1 }, 3);
        assert!(cell.moved(1, 0).corners().0.longitude <= -180.0);
    }

    #[test]
    fn texts_are_geohashes() {
        let text = |longitude, latitude| Cell::of(Position { longitude, latitude }).text();
        assert_eq!(&text(13.361_389, 38.115_556), b"sqc8b49rny0");
        assert_eq!(&text(15.087_269, 37.502_669), b"sqdtr74hyu0");
    }
}
