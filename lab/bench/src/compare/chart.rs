//! A chart as SVG: grouped bars, lines over steps, or points. The legend is next to the plot, never
//! over it; the conditions of the measurements are below the title. Values that a paper states are
//! drawn as filled markers with their number, and the legend has their source.
//!
//! Each series has its own colour and marker, so that a hidden marker is still recognizable by its
//! outline; all have the same size. Lines connect only points on an ordered scale.

use super::axis::distinct;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Pixels of a picture, and of the legend in it.
const WIDTH: u32 = 860;
const HEIGHT: u32 = 420;
const LEGEND: u32 = 220;
/// Pixels between two lines of small print, and the number of characters that fit a line below the
/// title and in the legend.
const LINE: i32 = 15;
const SMALL_PRINT_CHARS: usize = 135;
const LEGEND_CHARS: usize = 34;
/// Half the width of a marker.
const RADIUS: i32 = 5;

/// Colours that differ for colour-blind people (Okabe and Ito), then others.
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

/// The form of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A group of bars at each step: for steps without an order.
    Bars,
    /// A line for each series over the steps, which are at equal distances.
    Steps,
    /// Points between numbers.
    Points {
        /// Whether the points of a series are connected, in their order.
        joined: bool,
    },
}

/// The unit of an axis, which determines the text of its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A count per operation.
    Each,
    /// Bytes.
    Bytes,
    /// Per second, in thousands (k) or millions (M).
    PerSecond,
    /// Microseconds.
    Microseconds,
}

impl Unit {
    /// Returns a tick's text; its unit is in the axis's title.
    fn tick(self, value: f64) -> String {
        let (scaled, suffix) = match (self, value.abs()) {
            (Self::PerSecond, size) if size >= 1e6 => (value / 1e6, "\u{a0}M"),
            (Self::PerSecond, size) if size >= 1e3 => (value / 1e3, "\u{a0}k"),
            _ => (value, ""),
        };
        format!("{}{suffix}", grouped(scaled))
    }
}

/// A line or a group of bars.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// With steps, x is the number of a step.
    pub(crate) points: Vec<(f64, f64)>,
    /// The reason if there are none.
    pub(crate) absent: Option<String>,
}

/// A value that was not measured here, such as one that a paper states.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// The series that it is compared with.
    pub(crate) series: String,
    /// `None` for a value that holds for no particular x, such as the peak of a curve; it is drawn
    /// as a line.
    pub(crate) x: Option<f64>,
    pub(crate) y: f64,
    /// The paper's section that states it, for the legend.
    pub(crate) source: String,
}

/// An axis with its title.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) title: String,
    pub(crate) unit: Unit,
}

/// A chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// The name of its file, without an extension.
    pub(crate) name: String,
    pub(crate) title: String,
    /// The conditions under which everything in it was measured.
    pub(crate) conditions: String,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    pub(crate) shape: Shape,
    /// Names of the steps; none with [`Shape::Points`].
    pub(crate) steps: Vec<String>,
    pub(crate) series: Vec<Series>,
    pub(crate) marks: Vec<Mark>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Chart {
    /// Returns the picture; without points, an empty plot.
    pub(crate) fn svg(&self) -> String {
        let mut picture = String::new();
        let root = SVGBackend::with_string(&mut picture, (WIDTH, HEIGHT)).into_drawing_area();
        // Drawing into a string does not fail.
        if let Err(error) = self.draw(&root) {
            unreachable!("drawing into a string: {error}");
        }
        drop(root);
        picture
    }

    fn draw(&self, root: &Area<'_>) -> Drawn {
        root.fill(&WHITE)?;
        root.draw(&Text::new(self.title.clone(), (12, 10), ("sans-serif", 17)))?;
        let small = ("sans-serif", 11).into_font().color(&BLACK.mix(0.65));
        let lines = wrapped(&self.conditions, SMALL_PRINT_CHARS);
        for (line, y) in lines.iter().zip((34..).step_by(LINE as usize)) {
            root.draw(&Text::new(line.clone(), (12, y), small.clone()))?;
        }
        let head = lines.iter().fold(40, |head, _| head + LINE);
        let (_, below) = root.split_vertically(head);
        let (left, legend) = below.split_horizontally(WIDTH - LEGEND);
        let mut plot = self.plot(&left)?;
        for (number, series) in self.series.iter().enumerate() {
            self.draw_series(&left, &mut plot, number, &series.points)?;
        }
        self.marks.iter().try_for_each(|mark| self.draw_mark(&left, &mut plot, mark))?;
        self.draw_legend(&legend)
    }

    /// Draws the axes.
    fn plot<'a, 'b>(&self, area: &'a Area<'b>) -> Result<Plot<'a, 'b>, DrawingAreaErrorKind<std::io::Error>> {
        let (x_max, y_max) = self.reach();
        let mut plot: Plot<'_, '_> = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
        let (x_tick, y_tick) =
            (|value: &f64| self.x.unit.tick(*value), |value: &f64| self.y.unit.tick(*value));
        let mut mesh = plot.configure_mesh();
        mesh.y_desc(&self.y.title).x_desc(&self.x.title).disable_x_mesh().light_line_style(WHITE.mix(0.0));
        mesh.y_label_formatter(&y_tick).x_label_formatter(&x_tick);
        if !self.has_numbers() {
            mesh.x_labels(0);
        }
        mesh.draw()?;
        if !self.has_numbers() {
            self.draw_steps(area, &plot)?;
        }
        Ok(plot)
    }

    /// Whether the x axis has numbers rather than steps.
    fn has_numbers(&self) -> bool {
        matches!(self.shape, Shape::Points { .. })
    }

    fn draw_series(
        &self,
        area: &Area<'_>,
        plot: &mut Plot<'_, '_>,
        number: usize,
        points: &[(f64, f64)],
    ) -> Drawn {
        let colour = colour(number);
        if self.shape == Shape::Bars {
            return self.draw_bars(plot, number, points, colour);
        }
        let moved: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (self.middle(x), y)).collect();
        if matches!(self.shape, Shape::Steps | Shape::Points { joined: true }) {
            plot.draw_series(LineSeries::new(moved.iter().copied(), colour.stroke_width(2)))?;
        }
        let shown = moved.iter().filter(|point| point.1.is_finite());
        shown
            .map(|point| pixel(area, plot, *point))
            .try_for_each(|at| area.draw(&outline(number, at, colour)))
    }

    /// Draws a stated value: a filled marker of its series, or a line in its colour, and the number.
    fn draw_mark(&self, area: &Area<'_>, plot: &mut Plot<'_, '_>, mark: &Mark) -> Drawn {
        let number = self.series.iter().position(|series| series.name == mark.series).unwrap_or_default();
        let x = match mark.x {
            Some(x) if self.shape == Shape::Bars => self.bar(number, x) + self.bar_width() / 2.0,
            Some(x) => self.middle(x),
            None => {
                let ends = [(0.0, mark.y), (self.reach().0, mark.y)];
                plot.draw_series(DashedLineSeries::new(ends, 6, 4, colour(number).stroke_width(1)))?;
                0.0
            }
        };
        let at = pixel(area, plot, (x, mark.y));
        if mark.x.is_some() {
            area.draw(&Polygon::new(corners(number, at), colour(number).filled()))?;
            area.draw(&outline(number, at, BLACK))?;
        }
        let beside = (at.0 + RADIUS + 3, at.1 - RADIUS - 8);
        area.draw(&Text::new(self.y.unit.tick(mark.y), beside, ("sans-serif", 11)))
    }

    /// Draws the names of all series, with the reason for each that has no points, and the sources
    /// of the stated values.
    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let small = ("sans-serif", 11).into_font().color(&BLACK.mix(0.65));
        let mut y = 14;
        for (number, series) in self.series.iter().enumerate() {
            if self.shape == Shape::Bars {
                area.draw(&Rectangle::new([(6, y), (18, y + 12)], colour(number).filled()))?;
            } else {
                area.draw(&outline(number, (12, y + 6), colour(number)))?;
            }
            area.draw(&Text::new(series.name.clone(), (24, y), ("sans-serif", 13)))?;
            y += 20;
            for line in series.absent.iter().flat_map(|why| wrapped(why, LEGEND_CHARS)) {
                area.draw(&Text::new(line, (24, y - 3), small.clone()))?;
                y += LINE;
            }
        }
        let sources = distinct(self.marks.iter().map(|mark| (mark.x.is_some(), &mark.source)));
        for (has_x, source) in sources {
            let form = if has_x { "filled" } else { "dashed" };
            for line in wrapped(&format!("{form}: paper, {source}"), LEGEND_CHARS) {
                area.draw(&Text::new(line, (6, y), small.clone()))?;
                y += LINE;
            }
        }
        Ok(())
    }

    /// Returns the x at which a point is drawn.
    fn middle(&self, x: f64) -> f64 {
        if self.has_numbers() { x } else { x + 0.5 }
    }

    /// Returns the largest x and y of the plot.
    fn reach(&self) -> (f64, f64) {
        let points = || {
            let measured = self.series.iter().flat_map(|series| series.points.iter().copied());
            measured.chain(self.marks.iter().map(|mark| (mark.x.unwrap_or(0.0), mark.y)))
        };
        let most = |values: &mut dyn Iterator<Item = f64>| {
            values.filter(|value| value.is_finite()).fold(0.0, f64::max) * 1.08
        };
        let above_zero = |value: f64| if value > 0.0 { value } else { 1.0 };
        let x_max = if self.has_numbers() {
            most(&mut points().map(|point| point.0))
        } else {
            self.steps.len() as f64
        };
        (above_zero(x_max), above_zero(most(&mut points().map(|point| point.1))))
    }

    fn draw_steps(&self, area: &Area<'_>, plot: &Plot<'_, '_>) -> Drawn {
        let style = ("sans-serif", 12).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
        for (number, step) in self.steps.iter().enumerate() {
            let (x, y) = pixel(area, plot, (number as f64 + 0.5, 0.0));
            area.draw(&Text::new(step.clone(), (x, y + 6), style.clone()))?;
        }
        Ok(())
    }

    /// Returns the width of a bar. A fifth of each step stays free between groups.
    fn bar_width(&self) -> f64 {
        0.8 / self.series.len().max(1) as f64
    }

    /// Returns the left edge of a series' bar.
    fn bar(&self, number: usize, x: f64) -> f64 {
        x + 0.1 + number as f64 * self.bar_width()
    }

    fn draw_bars(
        &self,
        plot: &mut Plot<'_, '_>,
        number: usize,
        points: &[(f64, f64)],
        colour: RGBColor,
    ) -> Drawn {
        let width = self.bar_width();
        let left = |x: f64| self.bar(number, x);
        let bars = points
            .iter()
            .filter(|point| point.1.is_finite())
            .map(|&(x, y)| Rectangle::new([(left(x), 0.0), (left(x) + width * 0.92, y)], colour.filled()));
        plot.draw_series(bars)?;
        // A bar of height zero is a measurement, too.
        let style = ("sans-serif", 11).into_font().color(&colour).pos(Pos::new(HPos::Center, VPos::Bottom));
        let zeros = points.iter().filter(|point| point.1 == 0.0);
        plot.draw_series(zeros.map(|&(x, _)| Text::new("0", (left(x) + width / 2.0, 0.0), style.clone())))?;
        Ok(())
    }
}

/// Returns where a point of the plot is in the area around it.
fn pixel(area: &Area<'_>, plot: &Plot<'_, '_>, point: (f64, f64)) -> (i32, i32) {
    // A plot's positions are those of the whole picture.
    let ((x, y), (left, top)) = (plot.backend_coord(&point), area.get_base_pixel());
    (x - left, y - top)
}

/// Returns the colour of a series.
fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// Returns the marker of a series as an outline, with a shape for each colour.
fn outline<'b>(
    number: usize,
    at: (i32, i32),
    colour: RGBColor,
) -> DynElement<'static, SVGBackend<'b>, (i32, i32)> {
    if number.is_multiple_of(5) {
        return Circle::new(at, RADIUS, colour.stroke_width(2)).into_dyn();
    }
    let corners = corners(number, at);
    let closed = corners.iter().chain(corners.first()).copied();
    PathElement::new(closed.collect::<Vec<_>>(), colour.stroke_width(2)).into_dyn()
}

/// Returns the corners of a series' marker; for a circle, of the square in it.
fn corners(number: usize, (x, y): (i32, i32)) -> Vec<(i32, i32)> {
    let r = RADIUS;
    let corners = match number % 5 {
        0 => vec![(-r + 1, -r + 1), (r - 1, -r + 1), (r - 1, r - 1), (-r + 1, r - 1)],
        1 => vec![(-r, -r), (r, -r), (r, r), (-r, r)],
        2 => vec![(0, -r - 1), (r + 1, r), (-r - 1, r)],
        3 => vec![(0, -r - 2), (r + 2, 0), (0, r + 2), (-r - 2, 0)],
        _ => vec![(-r - 1, -r), (r + 1, -r), (0, r + 1)],
    };
    corners.into_iter().map(|(dx, dy)| (x + dx, y + dy)).collect()
}

/// Breaks a text at spaces into lines of at most `chars` characters.
fn wrapped(text: &str, chars: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // A non-breaking space does not break.
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= chars => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns a number with grouped thousands and at most two decimals.
fn grouped(value: f64) -> String {
    let text = format!("{:.2}", value.abs());
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let mut digits = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            digits.push(',');
        }
        digits.push(digit);
    }
    let decimals = decimals.trim_end_matches('0');
    let sign = if value < 0.0 { "-" } else { "" };
    if decimals.is_empty() { format!("{sign}{digits}") } else { format!("{sign}{digits}.{decimals}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.into(), points: points.to_vec(), absent: None }
    }

    fn chart(shape: Shape) -> Chart {
        let has_steps = !matches!(shape, Shape::Points { .. });
        Chart {
            name: "c-cache".into(),
            title: "C <all>".into(),
            conditions: "randint, 1,000 records".into(),
            x: Scale { title: "cache".into(), unit: Unit::PerSecond },
            y: Scale { title: "round trips".into(), unit: Unit::Each },
            shape,
            steps: if has_steps { vec!["1M".into(), "10M".into()] } else { vec![] },
            series: vec![
                series("dart", &[(0.0, 3.0), (1.0, 2.5)]),
                series("fg+", &[(0.0, 4.0), (1.0, 0.0)]),
                Series { absent: Some("measured at cache 4M only".into()), ..series("art", &[]) },
            ],
            marks: Vec::new(),
        }
    }

    const SHAPES: [Shape; 4] =
        [Shape::Bars, Shape::Steps, Shape::Points { joined: true }, Shape::Points { joined: false }];

    #[test]
    fn every_series_and_step_is_drawn() {
        for shape in SHAPES {
            let svg = chart(shape).svg();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            for text in ["C &lt;all&gt;", "fg+", "round trips", "1,000 records", "cache 4M only"] {
                assert!(svg.contains(text), "{text}: {svg}");
            }
            // One per series in the legend, the background, and a bar of height zero.
            let bars = if shape == Shape::Bars { 1 + 4 + 3 } else { 1 };
            assert_eq!(svg.matches("<rect").count(), bars, "{svg}");
            let circles = if shape == Shape::Bars { 0 } else { 2 + 1 };
            assert_eq!(svg.matches("<circle").count(), circles, "{svg}");
            assert_eq!(svg.contains("10M"), !matches!(shape, Shape::Points { .. }));
        }
    }

    #[test]
    fn markers_have_one_size_and_lines_join_only_what_is_joined() {
        let lines = |shape| {
            let svg = chart(shape).svg();
            let colours =
                ["#0072B2", "#E69F00"].map(|colour| svg.matches(&format!("stroke=\"{colour}\"")).count());
            assert!(!svg.contains(" r=\"4\"") && !svg.contains(" r=\"6\""), "{svg}");
            colours
        };
        let (joined, apart) = (lines(Shape::Points { joined: true }), lines(Shape::Points { joined: false }));
        assert_eq!(joined, apart.map(|count| count + 1));
        assert_eq!(lines(Shape::Steps), joined);
    }

    #[test]
    fn stated_value_is_drawn_with_its_number_and_source() {
        let mark = |series: &str, x| Mark { series: series.into(), x, y: 7.25, source: "section 5.2".into() };
        for shape in SHAPES {
            let marked = Chart { marks: vec![mark("fg+", Some(1.0))], ..chart(shape) }.svg();
            assert!(marked.contains("7.25") && marked.contains("filled: paper, section 5.2"));
            assert_eq!(marked.matches("<polygon").count(), 1, "{marked}");
            let peak = Chart { marks: vec![mark("dart", None)], ..chart(shape) }.svg();
            assert!(peak.contains("7.25") && peak.contains("dashed: paper, section 5.2"), "{peak}");
            assert_eq!(peak.matches("<polygon").count(), 0, "{peak}");
        }
    }

    #[test]
    fn nothing_and_nonsense_are_drawn_too() {
        let empty = Chart { series: vec![], steps: vec![], conditions: String::new(), ..chart(Shape::Bars) };
        assert!(empty.svg().contains("</svg>"));
        for shape in SHAPES {
            let odd = Chart { series: vec![series("x", &[(0.0, 0.0), (1.0, f64::NAN)])], ..chart(shape) };
            assert!(odd.svg().contains("</svg>"));
        }
    }

    #[test]
    fn ticks_are_in_the_axis_unit() {
        let ticks = |unit: Unit| [0.0, 0.25, 1500.0, 2e6].map(|value| unit.tick(value));
        assert_eq!(ticks(Unit::PerSecond), ["0", "0.25", "1.5\u{a0}k", "2\u{a0}M"]);
        for unit in [Unit::Each, Unit::Bytes, Unit::Microseconds] {
            assert_eq!(ticks(unit), ["0", "0.25", "1,500", "2,000,000"]);
        }
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
    }
}
