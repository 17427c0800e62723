//! Word lists behind the synthetic e-mail addresses: names and words in common use, no real
//! person's address.
//!
//! Each list is in rough order of how common the entry is; the generator draws more addresses from
//! the head of a list. Only the letters a to z occur: the generator relies on it to keep stems and
//! digits apart (see the parent module).

/// Given names, common ones first.
pub(super) const FIRST: &str = "
james john robert michael maria david mary william anna richard thomas jennifer daniel linda mark susan paul lisa
jose ali mohamed ahmed andrea laura peter sarah karen chris kevin nicole steve george martin alex brian jessica
elena olga ivan sergey dmitry natalia luis carlos juan ana marie sophie julie pierre claire luca marco giulia anita
raj amit priya wei li ming yuki kenji hiroshi jan eva petra klaus stefan ingrid lars erik sven joao pedro rafael
fatima omar yusuf aisha ashley amanda joshua matthew andrew joseph anthony ryan jason justin brandon samantha
elizabeth stephanie megan rachel emily lauren heather melissa amber danielle brittany rebecca kelly crystal tiffany
christina patricia barbara dorothy nancy betty sandra donna carol ruth sharon helen deborah shirley cynthia angela
brenda pamela martha debra amy virginia kathleen catherine christine samuel benjamin jacob nathan tyler zachary
jonathan gregory patrick timothy ronald kenneth edward donald charles steven jeffrey scott eric stephen larry frank
raymond jerry dennis walter harold douglas henry carl arthur roger keith jeremy terry lawrence sean albert jesse
willie billy bruce ralph roy eugene russell louis philip bobby johnny randy howard jimmy antonio tony victor
ernest phillip todd craig alan shawn clarence earl danny bryan stanley leonard nathalie manuel rodney curtis norman
allen marvin vincent glenn jeff travis jacques lee alfred kyle francis bradley dave mike joe tom bob bill jim dan
ben sam tim ron ken greg kate jenny lucy emma olivia sophia isabella mia charlotte amelia harper evelyn abigail ella
grace chloe victoria riley aria lily aubrey zoey penelope lillian addison layla natalie camila hannah brooklyn zoe
nora leah savannah audrey bella skylar paisley katja uwe heike birgit sabine monika ursula gisela renate helga
jurgen wolfgang dieter manfred horst werner gerhard hans kurt otto fritz karl rolf bernd ralf silke anke tanja
francois michel philippe alain bernard christophe nicolas laurent pascal sylvie isabelle valerie brigitte monique
giovanni giuseppe francesco antonella paola chiara valentina federica silvia roberto stefano massimo alberto
javier miguel francisco jorge alejandro fernando sergio pablo diego cristina lucia marta pilar carmen rosa beatriz
vladimir alexey andrei nikolai mikhail pavel yuri igor oleg viktor svetlana irina tatiana ekaterina galina ludmila
rahul sanjay vijay anil sunil deepak ravi suresh ramesh manish neha pooja kavita sunita hassan ibrahim khalid
abdullah mustafa mehmet murat emre ayse zeynep leila nadia samira karim tariq bilal imran chen hong jing xiao yang
takashi akira naoki haruka sakura min jun sung hyun thanh nguyet linh anders bjorn nils henrik mats lena karin
johan pieter willem joost marieke femke sander piotr krzysztof agnieszka katarzyna tomasz marek zofia jiri vaclav
zoltan istvan laszlo katalin dimitris kostas yannis eleni sofia bruno ricardo paulo marcos thiago juliana mariana
";

/// Family names, common ones first.
pub(super) const LAST: &str = "
smith johnson williams brown jones garcia miller davis rodriguez martinez hernandez lopez gonzalez wilson anderson
taylor moore jackson perez thompson white harris sanchez clark ramirez lewis robinson walker young hall
wright torres nguyen hill flores green adams nelson baker rivera campbell mitchell carter roberts
muller schmidt schneider fischer weber meyer wagner becker schulz hoffmann dubois durand lefebvre moreau
rossi russo ferrari bianchi romano silva santos oliveira souza costa ivanov petrov smirnov kumar singh
sharma patel khan wang zhang chen liu kim park lee tanaka suzuki sato yamamoto gomez phillips evans turner diaz parker
cruz edwards collins reyes stewart morris morales murphy cook rogers gutierrez ortiz morgan cooper peterson bailey
reed howard ramos cox ward richardson watson brooks chavez wood bennett gray mendoza ruiz hughes
price alvarez castillo sanders myers long ross foster jimenez powell jenkins perry sullivan bell coleman
butler henderson barnes fisher vasquez simmons romero jordan patterson hamilton graham reynolds griffin wallace
moreno west cole hayes bryant herrera gibson ellis tran medina aguilar stevens murray ford castro marshall owens
harrison fernandez mcdonald woods washington kennedy wells vargas freeman webb tucker guzman burns crawford
olson simpson porter hunter gordon mendez silverman shaw snyder mason dixon munoz hunt hicks holmes palmer wagnerova black
robertson boyd stone salazar fox warren mills meyers rice schmid garza daniels ferguson nichols stephens soto
weaver gardner payne grant dunn kelley spencer hawkins arnold pierce hansen peters hart bradley knight
elliott cunningham duncan armstrong hudson carroll lane riley andrews alvarado ray delgado berry perkins hoffman
johnston matthews pena richards contreras willis carpenter sandoval guerrero george chapman rios estrada
ortega watkins greene nunez wheeler valdez harper burke larson santiago maldonado morrison franklin carlson austin
dominguez carr lawson jacobs obrien lynch vega bishop montgomery oliver jensen harvey williamson gilbert
dean sims espinoza howell wong reid hanson mccoy garrett burton fuller weberova schroeder schubert krause
lehmann koch richter klein wolf neumann schwarz zimmermann braun kruger hartmann lange werth krauss vogel keller
friedrich scholz seidel bergmann pohl engel horn busch sauer arndt petit leroy bonnet girard lambert rousseau
blanc guerin boyer garnier chevalier gauthier perrin colombo ricci marino greco conti deluca mancini rizzo
lombardi moretti barbieri fontana pereira carvalho almeida ferreira ribeiro rodrigues gomes martins araujo barbosa
popov sokolov lebedev kozlov novikov morozov volkov kuznetsov pavlov orlov romanov fedorov yadav gupta verma mehta
joshi reddy nair iyer das chaudhary mishra ahmad hussain malik sheikh demir yilmaz kaya celik ozturk zhao huang
zhou xu sun zhu guo lin gao luo liang choi jung kang cho yoon jang lim watanabe ito nakamura kobayashi
kato yoshida yamada sasaki matsumoto inoue kimura hayashi saito larsen nielsen pedersen johansson eriksson nilsson
lindberg bergstrom berg haugen dahl jansen devries bakker visser smit bos mulder dekker kowalski nowak wisniewski
wojcik kaminski novak svoboda dvorak horvath nagy kovacs toth szabo papadopoulos georgiou popescu ionescu dimitrov
";

/// Words people make addresses of.
pub(super) const WORD: &str = "
info sales contact office admin support mail hello team webmaster service shop studio music angel love baby star
sunny lucky happy crazy sweet little big cool blue red dark golden silver tiger lion wolf eagle dragon bear horse
butterfly rose flower princess king queen prince lady boss player soccer football hockey tennis golf racing biker
surfer skater dancer singer artist photo design travel world planet ocean river mountain forest storm thunder rain
snow winter summer spring sky moon sunshine light shadow ghost ninja pirate hunter fisher gamer coder hacker geek
doctor teacher nurse lawyer trader builder driver pilot captain sailor soldier ranger cowboy texas paris london berlin
tokyo miami boston chicago vegas jersey brooklyn dublin madrid roma milano lisboa moscow sydney toronto family house
garden kitchen coffee pizza cookie candy sugar honey cherry apple mango banana lemon pepper ginger chili monster
devil magic mystic legend phoenix falcon panther cobra viper turbo diesel nitro rocket laser cyber digital techno
";

/// Providers with their share of all addresses, in ten-thousandths; what is left over goes to small
/// domains.
pub(super) const PROVIDERS: &[(&str, u32)] = &[
    ("yahoo.com", 1850),
    ("gmail.com", 1700),
    ("hotmail.com", 1450),
    ("mail.ru", 480),
    ("aol.com", 430),
    ("msn.com", 120),
    ("live.com", 120),
    ("comcast.net", 110),
    ("web.de", 110),
    ("yahoo.fr", 90),
    ("hotmail.fr", 90),
    ("gmx.de", 90),
    ("yandex.ru", 90),
    ("rambler.ru", 80),
    ("libero.it", 80),
    ("yahoo.co.in", 70),
    ("yahoo.co.uk", 70),
    ("hotmail.co.uk", 70),
    ("qq.com", 70),
    ("bk.ru", 60),
    ("wanadoo.fr", 60),
    ("t-online.de", 50),
    ("sbcglobal.net", 50),
    ("orange.fr", 45),
    ("outlook.com", 45),
    ("hotmail.it", 45),
    ("163.com", 45),
    ("yahoo.it", 40),
    ("free.fr", 40),
    ("ymail.com", 40),
    ("wp.pl", 40),
    ("naver.com", 35),
    ("hanmail.net", 35),
    ("rediffmail.com", 35),
    ("bellsouth.net", 30),
    ("verizon.net", 30),
    ("att.net", 30),
    ("cox.net", 30),
    ("o2.pl", 30),
    ("uol.com.br", 30),
    ("bol.com.br", 25),
    ("yahoo.com.br", 25),
    ("terra.com.br", 20),
    ("googlemail.com", 25),
    ("yahoo.es", 25),
    ("hotmail.es", 25),
    ("yahoo.de", 25),
    ("hotmail.de", 25),
    ("laposte.net", 20),
    ("neuf.fr", 20),
    ("sfr.fr", 20),
    ("live.fr", 20),
    ("live.co.uk", 20),
    ("live.nl", 15),
    ("gmx.net", 20),
    ("gmx.at", 10),
    ("freenet.de", 15),
    ("arcor.de", 15),
    ("alice.it", 15),
    ("tiscali.it", 15),
    ("virgilio.it", 15),
    ("list.ru", 20),
    ("inbox.ru", 20),
    ("ukr.net", 20),
    ("126.com", 20),
    ("sina.com", 20),
    ("btinternet.com", 20),
    ("ntlworld.com", 12),
    ("sky.com", 10),
    ("earthlink.net", 15),
    ("charter.net", 12),
    ("optonline.net", 10),
    ("juno.com", 10),
    ("rocketmail.com", 10),
    ("icloud.com", 15),
    ("me.com", 12),
    ("mac.com", 10),
    ("mail.com", 10),
    ("bigpond.com", 12),
    ("optusnet.com.au", 6),
    ("shaw.ca", 10),
    ("rogers.com", 10),
    ("sympatico.ca", 8),
    ("telus.net", 6),
    ("home.nl", 8),
    ("planet.nl", 8),
    ("hetnet.nl", 6),
    ("telenet.be", 8),
    ("skynet.be", 8),
    ("interia.pl", 10),
    ("onet.pl", 10),
    ("seznam.cz", 12),
    ("centrum.cz", 6),
    ("freemail.hu", 8),
    ("abv.bg", 8),
];

/// Top-level domains of small sites with their weight, in hundredths.
pub(super) const TOP_LEVEL: &[(&str, u32)] = &[
    ("com", 46),
    ("net", 8),
    ("org", 7),
    ("de", 9),
    ("co.uk", 6),
    ("fr", 4),
    ("it", 4),
    ("nl", 4),
    ("ru", 3),
    ("edu", 3),
    ("pl", 2),
    ("com.br", 2),
    ("ca", 1),
    ("ch", 1),
];

/// Consonants of made-up nicknames and site names.
pub(super) const CONSONANTS: &[u8] = b"bdfghjklmnprst";
/// Vowels of made-up nicknames and site names.
pub(super) const VOWELS: &[u8] = b"aeiou";
