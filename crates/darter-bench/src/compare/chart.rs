//! A chart as SVG: grouped bars, lines over steps, or lines between points. The legend stands
//! beside the plot, never over it.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Pixels of a picture, and of the legend in it.
const WIDTH: u32 = 760;
const HEIGHT: u32 = 380;
const LEGEND: u32 = 170;

/// Colours that differ for people who see few (Okabe and Ito), then others.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 50),
    RGBColor(90, 90, 90),
    RGBColor(150, 40, 60),
    RGBColor(170, 170, 60),
];

/// How it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A group of bars at each step.
    Bars,
    /// A line for each series over the steps, which stand at equal distances.
    Steps,
    /// A line for each series between points of numbers.
    Points,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// The name of its file, without an ending.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) shape: Shape,
    /// Names of the steps; none with [`Shape::Points`].
    pub(crate) steps: Vec<String>,
    /// Names with their points; with steps, x is a step's number.
    pub(crate) series: Vec<(String, Vec<(f64, f64)>)>,
}

type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Chart {
    /// The picture; without points, an empty plot.
    pub(crate) fn svg(&self) -> String {
        let mut picture = String::new();
        let root = SVGBackend::with_string(&mut picture, (WIDTH, HEIGHT)).into_drawing_area();
        // A string takes whatever is drawn on it.
        if let Err(error) = self.draw(&root) {
            unreachable!("drawing into a string: {error}");
        }
        drop(root);
        picture
    }

    fn draw(&self, root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn {
        root.fill(&WHITE)?;
        let (left, legend) = root.split_horizontally(WIDTH - LEGEND);
        let (x_max, y_max) = self.reach();
        let mut plot: Plot<'_, '_> = ChartBuilder::on(&left)
            .caption(&self.title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(66)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
        let mut mesh = plot.configure_mesh();
        mesh.y_desc(&self.y).x_desc(&self.x).disable_x_mesh().light_line_style(WHITE.mix(0.0));
        mesh.y_label_formatter(&|value| short(*value)).x_label_formatter(&|value| short(*value));
        if self.shape != Shape::Points {
            mesh.x_labels(0);
        }
        mesh.draw()?;
        if self.shape != Shape::Points {
            self.draw_steps(&left, &plot)?;
        }
        // Earlier points are larger, so that they show behind those of others at the same place.
        let sizes = (4..).take(self.series.len().min(12)).collect::<Vec<i32>>();
        let sizes = sizes.into_iter().rev().chain(std::iter::repeat(4));
        for (((number, (name, points)), y), size) in
            self.series.iter().enumerate().zip((40..).step_by(20)).zip(sizes)
        {
            let colour = COLOURS[number % COLOURS.len()];
            if self.shape == Shape::Bars {
                self.draw_bars(&mut plot, number, points, colour)?;
            } else {
                let moved: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (self.middle(x), y)).collect();
                plot.draw_series(LineSeries::new(moved.iter().copied(), colour.stroke_width(2)))?;
                plot.draw_series(moved.iter().map(|&at| Circle::new(at, size, colour.filled())))?;
            }
            legend.draw(&Rectangle::new([(6, y), (18, y + 12)], colour.filled()))?;
            legend.draw(&Text::new(name.clone(), (24, y), ("sans-serif", 13)))?;
        }
        Ok(())
    }

    /// Where a point's x is drawn.
    fn middle(&self, x: f64) -> f64 {
        if self.shape == Shape::Points { x } else { x + 0.5 }
    }

    /// The largest x and y of the plot.
    fn reach(&self) -> (f64, f64) {
        let points = || self.series.iter().flat_map(|(_, points)| points.iter().copied());
        let most = |values: &mut dyn Iterator<Item = f64>| {
            values.filter(|value| value.is_finite()).fold(0.0, f64::max) * 1.08
        };
        let above_zero = |value: f64| if value > 0.0 { value } else { 1.0 };
        let x_max = match self.shape {
            Shape::Points => most(&mut points().map(|point| point.0)),
            Shape::Bars | Shape::Steps => self.steps.len() as f64,
        };
        (above_zero(x_max), above_zero(most(&mut points().map(|point| point.1))))
    }

    fn draw_steps(
        &self,
        area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        plot: &Plot<'_, '_>,
    ) -> Drawn {
        let style = ("sans-serif", 12).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
        for (number, step) in self.steps.iter().enumerate() {
            let (x, y) = plot.backend_coord(&(number as f64 + 0.5, 0.0));
            area.draw(&Text::new(step.clone(), (x, y + 6), style.clone()))?;
        }
        Ok(())
    }

    fn draw_bars(
        &self,
        plot: &mut Plot<'_, '_>,
        number: usize,
        points: &[(f64, f64)],
        colour: RGBColor,
    ) -> Drawn {
        // A fifth of each step stays free between groups.
        let width = 0.8 / self.series.len().max(1) as f64;
        let bars = points.iter().map(|&(x, y)| {
            let left = x + 0.1 + number as f64 * width;
            Rectangle::new([(left, 0.0), (left + width * 0.92, y)], colour.filled())
        });
        plot.draw_series(bars).map(drop)
    }
}

/// A number in few characters.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(shape: Shape) -> Chart {
        Chart {
            name: "c-cache".into(),
            title: "C <all>".into(),
            x: "cache".into(),
            y: "round trips".into(),
            shape,
            steps: if shape == Shape::Points { vec![] } else { vec!["1M".into(), "10M".into()] },
            series: vec![
                ("dart".into(), vec![(0.0, 3.0), (1.0, 2.5)]),
                ("fg+".into(), vec![(0.0, 4.0), (1.0, 1.0)]),
            ],
        }
    }

    #[test]
    fn every_series_and_step_is_drawn() {
        for shape in [Shape::Bars, Shape::Steps, Shape::Points] {
            let svg = chart(shape).svg();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            assert!(svg.contains("C &lt;all&gt;") && svg.contains("fg+") && svg.contains("round trips"));
            match shape {
                // Of each series one in the legend; the background.
                Shape::Bars => assert_eq!(svg.matches("<rect").count(), 1 + 4 + 2, "{svg}"),
                Shape::Steps | Shape::Points => assert_eq!(svg.matches("<circle").count(), 4, "{svg}"),
            }
            assert_eq!(svg.contains("10M"), shape != Shape::Points);
        }
    }

    #[test]
    fn nothing_and_nonsense_are_drawn_too() {
        let empty = Chart { series: vec![], steps: vec![], ..chart(Shape::Bars) };
        assert!(empty.svg().contains("</svg>"));
        let odd =
            Chart { series: vec![("x".into(), vec![(0.0, 0.0), (1.0, f64::NAN)])], ..chart(Shape::Steps) };
        assert!(odd.svg().contains("</svg>"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 0.25, 3.0, 1500.0, 2e6, 3.1e9].map(short), ["0", "0.25", "3", "1.5k", "2M", "3.1G"]);
    }
}
