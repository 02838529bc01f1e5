package stack

import (
	"archive/tar"
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"
)

// unpack puts the files of an archive below dir: a zip file with one tar file in it, compressed by xz.
func unpack(ctx context.Context, archive, dir string) error {
	outer, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = outer.Close() }()
	for _, entry := range outer.File {
		if !strings.HasSuffix(entry.Name, ".txz") {
			continue
		}
		content, err := entry.Open()
		if err != nil {
			return err
		}
		defer func() { _ = content.Close() }()
		plain, err := xz.NewReader(content)
		if err != nil {
			return err
		}
		return untar(ctx, plain, dir)
	}
	return errors.New("the archive has no .txz file")
}

// untar never writes outside of dir, whatever names the archive has.
func untar(ctx context.Context, content io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	bounded := &io.LimitedReader{R: content, N: maxUnpacked}
	files := tar.NewReader(bounded)
	for ctx.Err() == nil {
		header, err := files.Next()
		switch {
		case bounded.N == 0:
			return fmt.Errorf("it has more than %d bytes", maxUnpacked)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := unpackOne(root, header, files); err != nil {
			return fmt.Errorf("%q: %w", header.Name, err)
		}
	}
	return context.Cause(ctx)
}

func unpackOne(root *os.Root, header *tar.Header, content io.Reader) error {
	name := path.Clean(header.Name)
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		target := path.Join(path.Dir(name), header.Linkname) //nolint:gosec // G305: it is what is checked
		if path.IsAbs(header.Linkname) || !filepath.IsLocal(target) {
			return fmt.Errorf("a link to %q", header.Linkname)
		}
		return root.Symlink(header.Linkname, name)
	case tar.TypeReg:
		// The server may run as another user than this process.
		file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644|header.FileInfo().Mode().Perm()&0o111)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Close())
	default:
		return fmt.Errorf("an entry of type %q", header.Typeflag)
	}
}
