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

const HASHES: [&str; 5] = ["h1", "h2", "h3", "a", "h1"];
const SORTED_SETS: [&str; 5] = ["z1", "z2", "z3", "b", "z1"];
const FIELDS: [&str; 8] = ["", "f", "f\0", "f\0x", "g", "fg", "10", "\u{ff}"];
const SCORES: [&str; 33] = [
    "0",
    "1",
    "2",
    "3",
    "1",
    "2",
    "3",
    "-1",
    "1.5",
    "0.1",
    "+7",
    "-2.5",
    "10",
    "100",
    "5.",
    ".5",
    "1e3",
    "1e17",
    "123456789.123456789",
    "9007199254740993",
    "5e-324",
    "inf",
    "-inf",
    "+infinity",
    "nan",
    "1e400",
    "-1e400",
    "1e-400",
    "",
    "x",
    " 1",
    "1 ",
    "1.7976931348623157e308",
];
const SCORE_BOUNDS: [&str; 20] = [
    "-inf", "+inf", "inf", "0", "(0", "1", "(1", "2", "(2", "3", "-1", "1.5", "(1.5", "(inf", "(-inf", "nan",
    "", "x", " 1", "1e400",
];
const NAME_BOUNDS: [&str; 14] =
    ["-", "+", "[", "(", "[f", "(f", "[f\0", "(f\0", "(f\0x", "[g", "(10", "[\u{ff}", "x", "--"];
const RANKS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "5",
    "-1",
    "-2",
    "-3",
    "-5",
    "100",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "x",
];
const COUNTS: [&str; 8] = ["0", "1", "2", "3", "100", "-1", "x", "9223372036854775807"];

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
        "H" => dice.pick(&HASHES),
        "Z" => dice.pick(&SORTED_SETS),
        "A" => dice.pick(&["a", "b", "h1", "h2", "z1", "z2"]),
        // Whose members have one score: by names Redis tells nothing certain of others.
        "X" => dice.pick(&["names1", "names2"]),
        "D" => dice.pick(&FIELDS),
        "R" => dice.pick(&SCORES),
        "B" => dice.pick(&SCORE_BOUNDS),
        "L" => dice.pick(&NAME_BOUNDS),
        "I" => dice.pick(&RANKS),
        "C" => dice.pick(&COUNTS),
        "V" if dice.one_in(4) => return (0..dice.below(200)).map(|_| dice.word() as u8).collect(),
        "V" => dice.pick(&VALUES),
        word => word,
    };
    text.as_bytes().to_vec()
}

/// Sentences; capital letters alone are places.
pub const SENTENCES: &[&str] = &[
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

/// Of hashes, sorted sets, and what they have in common with other keys.
pub const AGGREGATES: &[&str] = &[
    "hset H D V",
    "hset H D V D V D V",
    "hset H D N",
    "hset H D F",
    "hset H D V D",
    "hmset H D V D V",
    "hmset H D V D",
    "hsetnx H D V",
    "hget H D",
    "hget H D",
    "hmget H D D D",
    "hgetall H",
    "hkeys H",
    "hvals H",
    "hdel H D",
    "hdel H D D D",
    "hdel H D D D D D D D D",
    "hlen H",
    "hexists H D",
    "hstrlen H D",
    "hincrby H D N",
    "hincrby H D N",
    "hincrbyfloat H D F",
    "hincrbyfloat H D F",
    "hscan H 0 count 1000",
    "hscan H 0 match P count 1000",
    "hscan H 0 count C",
    "hscan H N foo",
    "hscan H 0 type hash",
    "zadd Z R D",
    "zadd Z R D",
    "zadd Z R D R D R D",
    "zadd Z R D R",
    "zadd Z nx R D R D",
    "zadd Z xx R D R D",
    "zadd Z xx ch R D R D",
    "zadd Z gt R D",
    "zadd Z gt ch R D R D",
    "zadd Z lt R D",
    "zadd Z xx lt ch R D",
    "zadd Z incr R D",
    "zadd Z nx incr R D",
    "zadd Z xx incr R D",
    "zadd Z gt incr R D",
    "zadd Z lt incr R D",
    "zadd Z nx xx R D",
    "zadd Z gt lt R D",
    "zadd Z nx gt R D",
    "zadd Z incr R D R D",
    "zadd Z ch",
    "zadd Z foo R D",
    "zrem Z D",
    "zrem Z D D D D",
    "zscore Z D",
    "zmscore Z D D D",
    "zincrby Z R D",
    "zincrby Z R D",
    "zcard Z",
    "zcount Z B B",
    "zrank Z D",
    "zrevrank Z D",
    "zrange Z I I",
    "zrange Z I I withscores",
    "zrange Z I I rev withscores",
    "zrange Z B B byscore",
    "zrange Z B B byscore limit C C withscores",
    "zrange Z B B byscore rev limit C C",
    "zrange Z I I limit C C",
    "zrange Z B B bylex withscores",
    "zrange Z B B byscore bylex",
    "zrange Z I I rev rev",
    "zrevrange Z I I",
    "zrevrange Z I I withscores",
    "zrevrange Z I I rev",
    "zrangebyscore Z B B",
    "zrangebyscore Z B B withscores",
    "zrangebyscore Z B B limit C C",
    "zrangebyscore Z B B limit C",
    "zrangebyscore Z B B byscore",
    "zrevrangebyscore Z B B",
    "zrevrangebyscore Z B B withscores limit C C",
    "zremrangebyscore Z B B",
    "zremrangebyrank Z I I",
    "zpopmin Z",
    "zpopmax Z",
    "zpopmin Z C",
    "zpopmax Z C",
    "zpopmin Z 1 2",
    "zscan Z 0 count 1000",
    "zscan Z 0 match P count 1000",
    "zscan Z 0 novalues",
    "zadd X 0 D 0 D 0 D",
    "zadd X 0 D",
    "zrangebylex X L L",
    "zrangebylex X L L limit C C",
    "zrevrangebylex X L L",
    "zrange X L L bylex rev limit C C",
    "zrange X L L bylex",
    "zlexcount X L L",
    "zremrangebylex X L L",
    "zrange X 0 -1",
    "del X",
    "del A",
    "del A A",
    "exists A A",
    "type A",
    "ttl A",
    "expire A S",
    "persist A",
    "pexpireat A T",
    "set A V",
    "set A V nx",
    "set A V xx get",
    "get A",
    "setnx A V",
    "append A V",
    "getdel A",
    "incr A",
    "mget A A",
    "strlen A",
    "zadd A R D",
    "hset A D V",
    "hdel A D",
    "zrem A D D D D",
    "zcard A",
    "hlen A",
    "keys *",
    "dbsize",
];

/// A request by chance.
pub fn sentence(dice: &mut Dice) -> Vec<Vec<u8>> {
    sentence_of(dice, SENTENCES)
}

/// A request by chance, of some sentences.
pub fn sentence_of(dice: &mut Dice, sentences: &[&str]) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = dice.pick(sentences).split(' ').map(|place| fill(dice, place)).collect();
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
