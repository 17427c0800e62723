//! Requests that somebody might make, or nobody should: by chance, from a seed.

/// Numbers that follow from a seed (`SplitMix64`).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

const KEYS: [&str; 9] = ["", "a", "b", "ab", "a\0", "k1", "k2", "user:1", "user:2"];
const NUMBERS: [&str; 22] = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "10",
    "100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-0",
    "01",
    "+1",
    " 1",
    "1 ",
    "",
    "x",
    "1.5",
    "-3",
    "5",
    "3",
    "4",
];
const FLOATS: [&str; 20] = [
    "0",
    "1.5",
    "-1.5",
    "0.1",
    "3.0",
    "1e3",
    "-2e-3",
    ".5",
    "5.",
    "1e400",
    "1e5000",
    "inf",
    "-inf",
    "nan",
    "abc",
    "1e17",
    "10.50",
    "123456789.123456789",
    "1e-20",
    "",
];
const VALUES: [&str; 10] =
    ["", "v", "hello world", "10", "-5", "3.25", "\r\n", "\0\u{1}", "9223372036854775807", "0012"];
/// Long enough that nothing ends meanwhile, whichever machine this is.
const SECONDS: [&str; 7] = ["100000", "200000", "300000", "9223372036854775807", "0", "-1", "x"];
const MILLIS: [&str; 7] = ["100000000", "200000000", "300000000", "9223372036854775807", "0", "-1", "1.5"];
const TIMES: [&str; 6] = ["4000000000", "4000000001", "1", "0", "-1", "9223372036854775807"];
const TIMES_IN_MS: [&str; 6] = ["4000000000000", "4000000000001", "1", "0", "-1", "9223372036854775807"];
const PATTERNS: [&str; 12] =
    ["*", "a*", "?", "[ab]*", "user:*", "user:[^1]", "", "\\a", "k[0-9]", "*b", "[", "**"];

/// What a place of a sentence stands for.
fn fill(dice: &mut Dice, place: &str) -> Vec<u8> {
    let text = match place {
        "K" => dice.pick(&KEYS),
        "N" => dice.pick(&NUMBERS),
        "F" => dice.pick(&FLOATS),
        "S" => dice.pick(&SECONDS),
        "M" => dice.pick(&MILLIS),
        "T" => dice.pick(&TIMES),
        "U" => dice.pick(&TIMES_IN_MS),
        "P" => dice.pick(&PATTERNS),
        "O" => dice.pick(&["0", "1", "5", "40", "-1", "x", "536870912", "9223372036854775807"]),
        "V" if dice.one_in(4) => return (0..dice.below(200)).map(|_| dice.word() as u8).collect(),
        "V" => dice.pick(&VALUES),
        word => word,
    };
    text.as_bytes().to_vec()
}

/// Sentences; capital letters alone are places.
const SENTENCES: &[&str] = &[
    "get K",
    "get K",
    "set K V",
    "set K V",
    "set K N",
    "set K F",
    "setnx K V",
    "setex K S V",
    "psetex K M V",
    "getset K V",
    "getdel K",
    "getex K",
    "getex K ex S",
    "getex K px M",
    "getex K exat T",
    "getex K pxat U",
    "getex K persist",
    "getex K ex S persist",
    "getex K keepttl",
    "getex K ex",
    "mget K K K",
    "mset K V K V",
    "mset K V K",
    "incr K",
    "decr K",
    "incrby K N",
    "decrby K N",
    "incrbyfloat K F",
    "incrbyfloat K F",
    "append K V",
    "strlen K",
    "getrange K N N",
    "substr K N N",
    "setrange K O V",
    "del K",
    "del K K K",
    "unlink K K",
    "exists K K K",
    "type K",
    "expire K S",
    "pexpire K M",
    "expireat K T",
    "pexpireat K U",
    "expire K S nx",
    "expire K S xx",
    "expireat K T gt",
    "expireat K T lt",
    "pexpireat K U gt",
    "pexpireat K U lt",
    "expire K S nx gt",
    "expire K S gt lt",
    "expire K S foo",
    "pexpireat K U xx gt",
    "ttl K",
    "pttl K",
    "expiretime K",
    "pexpiretime K",
    "persist K",
    "keys P",
    "dbsize",
    "set K V nx",
    "set K V xx",
    "set K V get",
    "set K V nx get",
    "set K V xx get",
    "set K V nx xx",
    "set K V ex S",
    "set K V px M",
    "set K V exat T",
    "set K V pxat U",
    "set K V keepttl",
    "set K V ex S keepttl",
    "set K V ex S px M",
    "set K V ex S nx get",
    "set K V keepttl xx get",
    "set K V ex",
    "set K V foo",
    "set K V pxat U nx",
    "set K V EX S ex S",
    "echo V",
    "ping",
    "ping V",
    "ping V V",
    "select 0",
    "select 99",
    "scan N count N",
    "scan 0 count 0",
    "scan 0 match",
    "scan x",
    "scan 0 foo bar",
    "expire K",
    "get",
    "get K K",
    "incr",
    "mget",
];

/// A request by chance.
pub fn sentence(dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = dice.pick(SENTENCES).split(' ').map(|place| fill(dice, place)).collect();
    if dice.one_in(40) {
        words.remove(dice.below(words.len()));
    }
    if dice.one_in(40) {
        words.push(fill(dice, "V"));
    }
    if dice.one_in(10) && !words.is_empty() {
        words[0].make_ascii_uppercase();
    }
    words
}
