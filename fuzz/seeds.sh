#!/usr/bin/env bash
# Makes what fuzzing starts from, in fuzz/corpus/TARGET (which git ignores): archives of other projects' tests (TARNFS_CORPUS), what the
# tools write, and indexes that the program makes (TARNFS, by default the release build).
#
#   fuzz/seeds.sh && cargo +nightly fuzz run tar -- -max_len=524288 -timeout=10 -rss_limit_mb=1024
#
# It needs what tests/prepare.sh installs, and udftools.
# Targets other than tar and index (131072) do with -max_len=65536. With clang, the C libraries can be watched as well:
#   CC=clang CFLAGS="-fsanitize=address -fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp" cargo +nightly fuzz build
set -euo pipefail
cd "$(dirname "$0")"
corpus=${TARNFS_CORPUS:-../../shared/corpus}
tarnfs=$(realpath "${TARNFS:-../target/release/tarnfs}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for target in tar cpio ar zip rpm deb cab xar asar warc wim mtree sqlar lha arj rar rar_decoder sevenzip squashfs iso9660 disk_image erofs udf differential names gzip zlib deflate bzip2 xz lzma lzip lzma2 zstd zstd_differential zstd_dictionary lz4 brotli snappy lzop lrzip compress index ratarmount rows mail html ogg pdf text containers; do mkdir -p "corpus/$target"; done

# seed TARGET FILE...: under names that tell files of one name in two folders apart.
seed() {
    local target=$1
    shift
    for file in "$@"; do
        if [ -f "$file" ] && [ "$(stat -c %s "$file")" -le 524288 ]; then
            cp "$file" "corpus/$target/$(md5sum < "$file" | cut -c 1-8)-$(basename "$file")"
        fi
    done
}

if [ -d "$corpus" ]; then
    seed tar "$corpus"/libarchive/*.tar "$corpus"/libarchive/*tar*.{gz,Z,bz2} "$corpus"/libarchive/test_read_format_{gtar,tar}*
    seed zip "$corpus"/libarchive/*.{zip,zipx}
    seed cpio "$corpus"/libarchive/*.cpio
    seed ar "$corpus"/libarchive/*.{a,ar,deb}
    seed gzip "$corpus"/libarchive/*.{gz,tgz}
    seed bzip2 "$corpus"/libarchive/*.{bz2,tbz,tbz2}
    seed xz "$corpus"/xz/*.xz "$corpus"/libarchive/*.{xz,txz}
    seed zstd "$corpus"/zstd/*/*.zst "$corpus"/libarchive/*.{zst,tzst}
    seed zstd_differential "$corpus"/zstd/*/*.zst "$corpus"/libarchive/*.{zst,tzst}
    seed sevenzip "$corpus"/libarchive/*format_7zip*
    seed rar "$corpus"/libarchive/*_rar*
    seed rpm "$corpus"/libarchive/*.rpm
    seed cab "$corpus"/libarchive/*.cab
    seed xar "$corpus"/libarchive/*.xar
    seed lha "$corpus"/libarchive/*.lzh
    seed warc "$corpus"/libarchive/*.warc
    seed mtree "$corpus"/libarchive/*.mtree
    seed lz4 "$corpus"/libarchive/*.lz4
    seed compress "$corpus"/libarchive/*.Z
    seed lzop "$corpus"/libarchive/*.lzo
    seed lrzip "$corpus"/libarchive/*.lrz
else
    echo "no archives of other projects at $corpus (TARNFS_CORPUS)"
fi

small=../tests/archives/small
seed cab "$small"/*.cab
seed xar "$small"/*.xar
seed containers "$small"/*.image.tar
seed asar "$small"/*.asar
seed warc "$small"/*.warc
seed sqlar "$small"/*.sqlar
seed wim "$small"/*.wim
seed lha "$small"/*.lzh
seed arj "$small"/*.arj
seed mail "$small"/*.mbox "$small"/*.eml
seed html "$small"/*.html
seed ogg "$small"/*.ogg
seed pdf "$small"/*.pdf
seed text "$small"/*.mbox "$small"/*.html

gzip -dc archives/tree.tar.gz > "$scratch/tree.tar"
(
    cd "$scratch"
    mkdir tree
    tar -xf tree.tar -C tree --exclude=null --exclude=loop
    for format in v7 ustar oldgnu gnu pax; do tar --format=$format -C tree -b1 -cf $format.tar folder link empty file; done
    tar --format=pax --sparse-version=0.0 -S -C tree -b1 -cf sparse-0.0.tar sparse
    tar --format=pax --sparse-version=0.1 -S -C tree -b1 -cf sparse-0.1.tar sparse
    tar --format=pax --sparse-version=1.0 -S -C tree -b1 -cf sparse-1.0.tar sparse
    tar --format=gnu -S -C tree -b1 -cf sparse-gnu.tar sparse
    tar --format=gnu -g snapshot -C tree -b1 -cf incremental.tar .
    for format in bin odc newc crc; do (cd tree; find folder link empty file | cpio -o --quiet -H $format) > $format.cpio; done
    cat newc.cpio odc.cpio > several.cpio; (cd tree; ar rcU ../gnu.ar random file); bsdtar --format=arbsd -C tree -cf bsd.ar random file
    tar --format=gnu -V label -C tree -b1 -cf label.tar folder
    tar --format=pax --pax-option=globexthdr.name=g,comment:=c,uid:=7 -C tree -b1 -cf global.tar folder
    (
        cd tree
        for options in '-r -y' '-r -y -0' '-r -y -X' '-r -y -fz' '-r -y -P secret'; do zip -q $options "../a$options.zip" folder link empty file; done
        zip -q -r -y - folder file > ../streamed.zip
    )
    (head -c 1000 tree.tar; cat a-r\ -y.zip) > prefix.zip
    head -c 400 streamed.zip > cut.zip
    seq 1 3000 > text
    head -c 30000 /dev/urandom > noise
    cat text noise text > mixed
    for level in 1 6 9; do gzip -nc$level mixed > $level.gz; bzip2 -c$level mixed > $level.bz2; done
    cat 1.gz 6.gz > two.gz
    cat 1.bz2 9.bz2 > two.bz2
    xz -0c --block-size=20000 mixed > blocks.xz
    xz -1c --check=sha256 --delta=dist=2 --lzma2=preset=1,lc=0,pb=0 mixed > delta.xz
    xz -1c --check=crc32 --x86 --lzma2=preset=1 mixed > x86.xz
    xz -1c --check=none mixed > none.xz
    for level in 0 6; do
        xz -${level}c --format=lzma mixed > $level.lzma
        lzip -${level}c mixed > $level.lz
        (printf '\030'; xz -c --format=raw --lzma2=preset=$level mixed) > $level.lzma2
    done
    for level in 1 3 19; do zstd -qc -$level mixed > $level.zst; done
    zstd -qc --no-check -B1 mixed > small.zst
    cat 1.zst 19.zst > two.zst
    split -b 200 text parts-
    zstd -q --train parts-* --maxdict=3000 -o trained
    head -c 5000 mixed > raw
    # The length of the dictionary in two bytes, the dictionary, and frames.
    for dictionary in trained raw; do
        for level in 1 19; do
            (
                printf "\\x$(printf %02x $(($(stat -c %s $dictionary) % 256)))\\x$(printf %02x $(($(stat -c %s $dictionary) / 256)))"
                cat $dictionary
                zstd -qc -$level -D $dictionary mixed
                head -c 3000 text | zstd -qc -$level --no-dictID -D $dictionary
            ) > $dictionary-$level.dictionary
        done
    done
    lz4 -qc -B4 mixed > 4.lz4
    lz4 -qc -B4 -BD -BX mixed > linked.lz4
    lz4 -qc -B5 --content-size --no-frame-crc mixed > 5.lz4
    # It minds where its output is longer.
    for width in 10 16; do compress -c -b $width < mixed > $width.Z || [ $? = 2 ]; done
    for level in 1 9; do lzop -c -$level < mixed > $level.lzo; done
    lzop -c --crc32 < mixed > crc.lzo
    for method in copy lzma2 ppmd; do 7zz a -bd -snl -mhc=off -m0=$method -mtc=on -mta=on $method.7z tree mixed > /dev/null; done
    7zz a -bd -snl -ms=off -mf=arm64 single.7z tree > /dev/null
    7zz a -bd -mhc=off -m0=bcj2 -m1=lzma -m2=lzma -m3=lzma bcj2.7z text mixed > /dev/null
    for options in '-comp gzip' '-comp xz -Xbcj x86' '-comp zstd' '-comp lz4' '-comp lzo -noI -noF' '-comp gzip -no-fragments -no-duplicates' '-comp gzip -always-use-fragments -exports -tailends'; do
        mksquashfs tree mixed "image$options.squashfs" -quiet -no-progress -nopad -noappend -b 4096 $options > log
    done
    for options in '' -R -J '-R -J' '-iso-level 4' '-R -z' '-R -udf'; do genisoimage -quiet -no-pad -input-charset iso8859-1 $options -o "image$options.iso" tree 2> log; done
    for revision in 0x0102 0x0150 0x0201; do truncate -s 1M $revision.img; mkudffs -r $revision -b 512 $revision.img > log; done
    export LRZIP=NOCONFIG
    for method in lzma gzip bzip2 lzo no-compress; do lrzip -Q -T --$method < mixed > $method.lrz; done
    head -c 3000 text | lrzip -Q -T > small.lrz
    for quality in 0 5 11; do brotli -c -q $quality < mixed > $quality.br; done
    python3 - << 'PYTHON'
import zlib
data = open('mixed', 'rb').read()
for level in (0, 1, 9):
    open(f'{level}.zz', 'wb').write(zlib.compress(data, level))
    raw = zlib.compressobj(level, wbits=-15)
    open(f'{level}.deflate', 'wb').write(raw.compress(data) + raw.flush())
def masked_crc32c(data):
    sum = 0xFFFFFFFF
    for byte in data:
        sum ^= byte
        for _ in range(8):
            sum = sum >> 1 ^ (0x82F63B78 if sum & 1 else 0)
    sum ^= 0xFFFFFFFF
    return (((sum >> 15 | sum << 17) & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, 'little')
def chunk(kind, data):
    return bytes([kind]) + len(data).to_bytes(3, 'little') + data
# Of an image of UDF, the blocks that are not zeros, each behind its number.
for name in ('0x0102.img', '0x0150.img', '0x0201.img', 'image-R -udf.iso'):
    image = open(name, 'rb').read()
    blocks = [(at, image[at * 512:at * 512 + 512]) for at in range(min(4096, len(image) // 512))]
    packed = b''.join(at.to_bytes(2, 'little') + block for at, block in blocks if any(block))
    open(f'{name}.udf', 'wb').write(b'packed' + packed)
# Chunks of literals: no library of snappy is needed for them.
parts = [data[at:at + 20000] for at in range(0, len(data), 20000)]
stored = [chunk(1, masked_crc32c(part) + part) for part in parts]
packed = [chunk(0, masked_crc32c(part[:60]) + bytes([60, 59 << 2]) + part[:60]) for part in parts if len(part) >= 60]
open('mixed.sz', 'wb').write(chunk(255, b'sNaPpY') + b''.join(stored) + chunk(254, bytes(100)) + b''.join(packed))
PYTHON
)
seed tar "$scratch"/*.tar
seed cpio "$scratch"/*.cpio
seed ar "$scratch"/*.ar
cp corpus/tar/* corpus/differential/
seed zip "$scratch"/*.zip
seed sevenzip "$scratch"/*.7z
seed squashfs "$scratch"/*.squashfs
seed iso9660 "$scratch"/image*.iso
seed udf "$scratch"/*.udf
for target in rar rar_decoder; do seed $target ../tests/archives/rar/*.*; done
seed gzip "$scratch"/*.gz archives/*.gz
seed zlib "$scratch"/*.zz
seed deflate "$scratch"/*.deflate
seed bzip2 "$scratch"/*.bz2 archives/*.bz2
seed xz "$scratch"/*.xz archives/*.xz
seed lzma "$scratch"/*.lzma
seed lzip "$scratch"/*.lz
seed lzma2 "$scratch"/*.lzma2
seed zstd "$scratch"/*.zst archives/*.zst
seed zstd_differential "$scratch"/*.zst archives/*.zst
seed zstd_dictionary "$scratch"/*.dictionary
seed lz4 "$scratch"/*.lz4 archives/*.lz4
seed compress "$scratch"/*.Z
seed lzop "$scratch"/*.lzo
seed lrzip "$scratch"/*.lrz
seed snappy "$scratch"/*.sz
seed brotli "$scratch"/*.br

# Whole files; how else these targets read their bytes, fuzz/src/sidecars.rs says.
for archive in "$scratch"/tree.tar archives/tree.tar.*; do
    name=$(basename "$archive")
    "$tarnfs" index -c --index-file "$scratch/$name.own" "$archive"
    seed index "$scratch/$name.own"
    if [ "$name" != tree.tar.lz4 ]; then
        "$tarnfs" index -c --format ratarmount --index-file "$scratch/$name.foreign" "$archive"
        seed ratarmount "$scratch/$name.foreign"
    fi
done
printf '%s' '../../a' > corpus/names/up
printf '%s' '/a//./b/' > corpus/names/absolute
printf '\xf0\xf2/\x83\x65\x00\n' > corpus/names/odd
python3 - << 'PYTHON'
import random
random.seed(1)
for target in ('rows', 'index', 'ratarmount'):
    for number in range(200):
        open(f'corpus/{target}/{number}', 'wb').write(random.randbytes(random.choice([5, 9, 17, 41])))
PYTHON
for target in corpus/*; do printf '%-12s %s seeds\n' "${target#corpus/}" "$(find "$target" -type f | wc -l)"; done
