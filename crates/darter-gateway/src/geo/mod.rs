//! Positions on the earth, as Redis's geo commands compute them: the same cells, distances and
//! search areas, to the last bit. A member of a sorted set is at the position that its score encodes.

mod area;
mod cell;

pub(crate) use area::{Area, Shape};
pub(crate) use cell::{Cell, LATITUDE_MAX, LONGITUDE_MAX, Position};

/// The radius of the earth in metres.
const EARTH_RADIUS: f64 = 6_372_797.560_856;

/// Returns radians.
fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

/// Returns degrees.
fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// Returns the distance in metres of two latitudes on one meridian.
fn distance_of_latitudes(one: f64, other: f64) -> f64 {
    EARTH_RADIUS * (radians(other) - radians(one)).abs()
}

/// Returns the distance of two positions in metres.
pub(crate) fn distance(one: Position, other: Position) -> f64 {
    let of_longitudes = ((radians(other.longitude) - radians(one.longitude)) / 2.0).sin();
    if of_longitudes == 0.0 {
        return distance_of_latitudes(one.latitude, other.latitude);
    }
    let (from, to) = (radians(one.latitude), radians(other.latitude));
    let of_latitudes = ((to - from) / 2.0).sin();
    // In Redis's order, without fused operations, so that all digits are equal.
    #[allow(clippy::suboptimal_flops)]
    let square = of_latitudes * of_latitudes + from.cos() * to.cos() * of_longitudes * of_longitudes;
    2.0 * EARTH_RADIUS * square.sqrt().asin()
}

/// Formats a distance with four decimals, as Redis does.
pub(crate) fn text_of_distance(distance: f64) -> String {
    // The cast of C: what is not a number becomes the smallest integer.
    let scaled = if distance.is_nan() { i64::MIN } else { (distance * 10_000.0).round_ties_even() as i64 };
    let (sign, scaled) = (if scaled < 0 { "-" } else { "" }, scaled.unsigned_abs());
    format!("{sign}{}.{:04}", scaled / 10_000, scaled % 10_000)
}

/// Formats a coordinate with at most 17 decimals, as Redis does.
pub(crate) fn text_of_coordinate(coordinate: f64) -> String {
    let text = format!("{coordinate:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(longitude: f64, latitude: f64) -> Position {
        Position { longitude, latitude }
    }

    #[test]
    fn distances_are_those_of_redis() {
        let palermo = Cell::of(at(13.361_389, 38.115_556)).position();
        let catania = Cell::of(at(15.087_269, 37.502_669)).position();
        assert_eq!(text_of_distance(distance(palermo, catania)), "166274.1516");
        assert_eq!(text_of_distance(distance(palermo, palermo)), "0.0000");
        assert_eq!(text_of_distance(0.000_06), "0.0001");
        assert_eq!(text_of_distance(f64::NAN), "-922337203685477.5808");
    }

    #[test]
    fn coordinates_have_no_zeros_at_their_ends() {
        for (coordinate, text) in [
            (13.361_389_338_970_184, "13.36138933897018433"),
            (-180.0, "-180"),
            (0.5, "0.5"),
            (-1e-20, "0"),
            (100.0, "100"),
        ] {
            assert_eq!(text_of_coordinate(coordinate), text);
        }
    }
}
