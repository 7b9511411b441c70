package controller

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"ponor/metadata"
)

// backupMagic opens a backup of metadata: a line of JSON follows, and the image
// as a snapshot.
const backupMagic = "ponor-metadata-backup 1\n"

// Backup is the metadata of a cluster as a file keeps it.
type Backup struct {
	Image *metadata.Image
	Taken time.Time
}

// backupHeader says what the file holds to who only reads its first lines.
type backupHeader struct {
	Cluster    string    `json:"cluster_id"`
	Generation uint64    `json:"generation"`
	Index      uint64    `json:"index"`
	StateHash  string    `json:"state_hash"`
	Taken      time.Time `json:"taken"`
	Bytes      int       `json:"bytes"`
	SHA256     string    `json:"sha256"` // of the snapshot
}

// WriteTo writes the backup.
func (b Backup) WriteTo(w io.Writer) (int64, error) {
	data, err := encodeSnapshot(b.Image)
	if err != nil {
		return 0, err
	}
	sum, hash := sha256.Sum256(data), b.Image.Hash()
	head, err := json.Marshal(backupHeader{
		Cluster: b.Image.ClusterID(), Generation: b.Image.Generation(), Index: uint64(b.Image.Index()),
		StateHash: hex.EncodeToString(hash[:]), Taken: b.Taken.UTC().Truncate(time.Second), Bytes: len(data), SHA256: hex.EncodeToString(sum[:]),
	})
	if err != nil {
		return 0, fmt.Errorf("encode backup header: %w", err)
	}
	n, err := w.Write(bytes.Join([][]byte{[]byte(backupMagic), head, []byte("\n"), data}, nil))
	if err != nil {
		return int64(n), fmt.Errorf("write backup: %w", err)
	}
	return int64(n), nil
}

// IsBackup says whether a file begins like a backup.
func IsBackup(b []byte) bool { return bytes.HasPrefix(b, []byte(backupMagic)) }

// ReadBackup decodes a backup and checks it against what it says of itself.
func ReadBackup(b []byte) (Backup, error) {
	rest, ok := bytes.CutPrefix(b, []byte(backupMagic))
	if !ok {
		return Backup{}, errors.New("read backup: this is no backup of metadata, or one of a newer version")
	}
	line, data, _ := bytes.Cut(rest, []byte("\n"))
	var h backupHeader
	if err := json.Unmarshal(line, &h); err != nil {
		return Backup{}, fmt.Errorf("read backup header: %w", err)
	}
	if sum := sha256.Sum256(data); len(data) != h.Bytes || hex.EncodeToString(sum[:]) != h.SHA256 {
		return Backup{}, fmt.Errorf("read backup: it is damaged: %d bytes with checksum %x, it was made of %d with %s; use another copy", len(data), sum, h.Bytes, h.SHA256)
	}
	img, err := decodeSnapshot(data)
	if err != nil {
		return Backup{}, fmt.Errorf("read backup: %w", err)
	}
	hash := img.Hash()
	if got := hex.EncodeToString(hash[:]); got != h.StateHash || img.ClusterID() != h.Cluster || img.Generation() != h.Generation || uint64(img.Index()) != h.Index {
		return Backup{}, fmt.Errorf("read backup: it loads as cluster %s, generation %d, index %d, hash %s, which is not what its header says", img.ClusterID(), img.Generation(), img.Index(), got)
	}
	return Backup{Image: img, Taken: h.Taken}, nil
}
