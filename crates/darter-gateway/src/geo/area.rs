//! Search areas: circles and boxes around a position, and the cells that cover them.

use super::cell::{Cell, Position};
use super::{EARTH_RADIUS, degrees, distance, distance_of_latitudes, radians};

/// Half of the earth's circumference on web maps, in metres.
const MERCATOR_MAX: f64 = 20_037_726.37;
/// Most steps of a cell.
const STEPS_MAX: u32 = 26;
/// The neighbours of a cell, in the order in which they are searched: cells to the east and north.
const NEIGHBOURS: [(i64, i64); 8] = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// A shape, measured in its area's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

/// A search area.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub centre: Position,
    pub shape: Shape,
    /// The metres of a unit.
    pub unit: f64,
}

impl Area {
    /// Returns the distance of a position from the centre in metres, if the position is in the area.
    pub(crate) fn distance_within(&self, position: Position) -> Option<f64> {
        let Self { centre, unit, .. } = *self;
        let is_within = match self.shape {
            Shape::Circle { radius } => {
                // Redis's comparison also accepts a distance that is not a number.
                let distance = distance(centre, position);
                return if distance > radius * unit { None } else { Some(distance) };
            }
            Shape::Box { width, height } => {
                let on_its_latitude = Position { latitude: position.latitude, ..centre };
                let is_outside = distance_of_latitudes(position.latitude, centre.latitude)
                    > height * unit / 2.0
                    || distance(position, on_its_latitude) > width * unit / 2.0;
                !is_outside
            }
        };
        is_within.then(|| distance(centre, position))
    }

    /// Returns the least and the greatest coordinates of the area.
    fn bounds(&self) -> (Position, Position) {
        let Position { longitude, latitude } = self.centre;
        let (width, height) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let (width, height) = (self.unit * width, self.unit * height);
        let north = degrees(height / EARTH_RADIUS);
        // The side that is nearer to a pole spans more degrees.
        let side = if latitude < 0.0 { latitude - north } else { latitude + north };
        let east = degrees(width / EARTH_RADIUS / radians(side).cos());
        let least = Position { longitude: longitude - east, latitude: latitude - north };
        (least, Position { longitude: longitude + east, latitude: latitude + north })
    }

    /// Returns the steps of cells of which nine probably cover the area.
    fn steps(&self) -> u32 {
        let radius = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        let mut metres = radius * self.unit;
        if metres == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = 1_i32;
        while metres < MERCATOR_MAX {
            metres *= 2.0;
            steps += 1;
        }
        // Near the poles cells are narrower.
        let latitude = self.centre.latitude.abs();
        steps -= 2 + i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        steps.clamp(1, STEPS_MAX.cast_signed()).cast_unsigned()
    }

    /// Returns the cells that cover the area, in the order in which Redis searches them.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let (least, greatest) = self.bounds();
        let steps = self.steps();
        let corners = |east, north| Cell::around(self.centre, steps).moved(east, north).corners();
        let is_too_small = corners(0, 1).1.latitude < greatest.latitude
            || corners(0, -1).0.latitude > least.latitude
            || corners(1, 0).1.longitude < greatest.longitude
            || corners(-1, 0).0.longitude > least.longitude;
        let steps = if steps > 1 && is_too_small { steps - 1 } else { steps };
        let cell = Cell::around(self.centre, steps);
        let (low, high) = cell.corners();
        let is_needed = |&(east, north): &(i64, i64)| {
            steps < 2
                || !(north < 0 && low.latitude < least.latitude
                    || north > 0 && high.latitude > greatest.latitude
                    || east < 0 && low.longitude < least.longitude
                    || east > 0 && high.longitude > greatest.longitude)
        };
        let neighbours = NEIGHBOURS.into_iter().filter(is_needed);
        let mut cells: Vec<Cell> = neighbours.map(|(east, north)| cell.moved(east, north)).collect();
        // Some neighbours of very large cells are the same.
        cells.dedup();
        cells.insert(0, cell);
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shapes() -> impl Strategy<Value = Shape> {
        let size = || (0_i32..23).prop_map(|power| f64::from(1 << power));
        prop_oneof![
            size().prop_map(|radius| Shape::Circle { radius }),
            (size(), size()).prop_map(|(width, height)| Shape::Box { width, height }),
        ]
    }

    proptest! {
        #[test]
        fn positions_in_an_area_are_in_its_cells(
            longitude in -150.0_f64..150.0,
            latitude in -60.0_f64..60.0,
            shape in shapes(),
            others in proptest::collection::vec((-1.0_f64..1.0, -1.0_f64..1.0), 50),
        ) {
            let centre = Position { longitude, latitude };
            let area = Area { centre, shape, unit: 0.3048 };
            let cells = area.cells();
            let (least, greatest) = area.bounds();
            for (east, north) in others {
                let position = Position {
                    longitude: (longitude + east * (greatest.longitude - least.longitude)).clamp(-180.0, 180.0),
                    latitude: (latitude + north * (greatest.latitude - least.latitude)).clamp(-85.0, 85.0),
                };
                let score = Cell::of(position).scores().0;
                let is_covered = cells.iter().any(|cell| (cell.scores().0..cell.scores().1).contains(&score));
                // Far from the centre Redis's cells do not cover everything either.
                if area.distance_within(position).is_some_and(|distance| distance < 200_000.0) {
                    prop_assert!(is_covered, "{position:?}");
                }
            }
        }

        #[test]
        fn extreme_areas_have_cells(longitude in -180.0_f64..=180.0, latitude in -85.05_f64..=85.05, size: f64, other: f64) {
            let centre = Position { longitude, latitude };
            for shape in [Shape::Circle { radius: size.abs() }, Shape::Box { width: size.abs(), height: other.abs() }] {
                let area = Area { centre, shape, unit: 1000.0 };
                prop_assert!((1..=9).contains(&area.cells().len()));
                area.distance_within(Position { longitude: -longitude, latitude: -latitude });
            }
        }
    }
}
