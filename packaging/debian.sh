#!/usr/bin/env bash
# Build the Debian packages libmrc1 (the library, which needs libc alone) and libmrc-dev into FOLDER.
#
#   packaging/debian.sh PYTHON FOLDER    PYTHON: of an environment in which openmrc is installed from this checkout
#
# The same sources make the same bytes: times are those of the last commit, or SOURCE_DATE_EPOCH.
set -euo pipefail
python=$(realpath -s "$1")
mkdir -p "$2"
out=$(realpath "$2")
root=$(realpath "$(dirname "$0")/..")
cd "$root"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
version=$("$python" -c 'from openmrc.version import __version__; print(__version__)')-1
arch=$(dpkg --print-architecture)
triplet=$(cc -print-multiarch)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
umask 022

"$python" -c 'import sys; from openmrc.programs.main import main; sys.exit(main())' native --install "$work/built" >/dev/null
lib=$work/libmrc1 dev=$work/libmrc-dev
mkdir -p {"$lib","$dev"}/{DEBIAN,"usr/lib/$triplet"} "$dev/usr/include" "$dev/usr/lib/$triplet/pkgconfig"
strip --strip-unneeded -R .comment -o "$lib/usr/lib/$triplet/libmrc.so.1" "$work/built/lib/libmrc.so.1"
cp "$work"/built/include/*.h "$dev/usr/include/"
chmod 644 "$lib/usr/lib/$triplet/libmrc.so.1"
ln -s libmrc.so.1 "$dev/usr/lib/$triplet/libmrc.so"
sed "s|^prefix=.*|prefix=/usr|; s|^libdir=.*|libdir=\${prefix}/lib/$triplet|" "$work/built/lib/pkgconfig/libmrc.pc" \
  >"$dev/usr/lib/$triplet/pkgconfig/libmrc.pc"
echo "libmrc 1 libmrc1 (>= ${version%-*})" >"$lib/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$lib/DEBIAN/triggers"
libc=$(objdump -T "$lib/usr/lib/$triplet/libmrc.so.1" | grep -oP 'GLIBC_\K[0-9.]+' | sort -V | tail -n 1)

# $1: package; $2: section; $3: dependencies; $4: one line about it; stdin: more about it
control() {
  local tree=$work/$1 doc=$work/$1/usr/share/doc/$1
  mkdir -p "$doc"
  {
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: openmrc\n\n'
    printf 'Files: *\nCopyright: The openmrc authors\nLicense: Apache-2.0\n'
    printf ' On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n'
  } >"$doc/copyright"
  printf 'openmrc (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n -- The openmrc authors <maintainers@openmrc.invalid>  %s\n' \
    "$version" "$(date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.Debian.gz"
  {
    printf 'Package: %s\nSource: openmrc\nVersion: %s\nArchitecture: %s\nMulti-Arch: same\nSection: %s\nPriority: optional\n' \
      "$1" "$version" "$arch" "$2"
    printf 'Maintainer: The openmrc authors <maintainers@openmrc.invalid>\nDepends: %s\nInstalled-Size: %s\nDescription: %s\n' \
      "$3" "$(du -ks --exclude DEBIAN "$tree" | cut -f1)" "$4"
    cat
  } >"$tree/DEBIAN/control"
  (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  find "$tree" -print0 | xargs -0 touch -h -d "@$SOURCE_DATE_EPOCH"
  dpkg-deb --root-owner-group -Zxz -b "$tree" "$out/${1}_${version}_$arch.deb" >/dev/null
}

control libmrc1 libs "libc6 (>= $libc)" "RDMA verbs over Multipath Reliable Connection, in software" <<'END'
 The whole MRC endpoint (OCP MRC 1.0) as one library: a verbs device mrc0, mrc.h
 and mrc_ctl.h. Preloaded, it lets unmodified RDMA programs run without a NIC.
END
control libmrc-dev libdevel "libmrc1 (= $version), libibverbs-dev" "headers of libmrc, Multipath Reliable Connection in software" <<'END'
 mrc.h and mrc_ctl.h with the functions of OCP MRC 1.0.1, and libmrc.pc for
 pkg-config.
END
ls -l "$out"/*.deb
