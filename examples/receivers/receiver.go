// Receives webhooks, with only Go: PORT=8080 WEBHOOK_SECRET=whsec_… go run receiver.go
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Larger than any delivery, in bytes.
const bodyMax = 2_000_000

// Time limit for a sender's headers and body.
const readTimeout = 10 * time.Second

type event struct {
	ID   string          `json:"id"`
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

var (
	secret = []byte(os.Getenv("WEBHOOK_SECRET"))
	digits = regexp.MustCompile(`^[0-9]{1,12}$`)

	// The ids of processed events. Keep yours in your database, under a unique key.
	done       = map[string]bool{}
	oneAtATime sync.Mutex
)

func main() {
	if len(secret) == 0 {
		log.Fatal("WEBHOOK_SECRET is not set")
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	server := &http.Server{
		Addr:        "127.0.0.1:" + port,
		Handler:     http.HandlerFunc(receive),
		ReadTimeout: readTimeout,
	}
	log.Fatal(server.ListenAndServe())
}

func receive(response http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, bodyMax))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		response.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil || !isGenuine(request.Header.Get("X-Service-Signature"), body) {
		response.WriteHeader(http.StatusUnauthorized)
		return
	}
	if _, isTest := request.Header["X-Service-Test"]; isTest { // Its record is invented.
		response.WriteHeader(http.StatusNoContent)
		return
	}
	var received event
	if err := json.Unmarshal(body, &received); err != nil {
		response.WriteHeader(http.StatusInternalServerError) // The event is sent again later.
		return
	}
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	if !done[received.ID] {
		work(received)
		done[received.ID] = true // After the work: a crash repeats it instead of losing it.
	}
	response.WriteHeader(http.StatusNoContent)
}

// Whether the header signs exactly these bytes, with a timestamp within 5 minutes of now.
func isGenuine(header string, body []byte) bool {
	at := ""
	var given []string
	for _, field := range strings.Split(header, ",") {
		name, value, _ := strings.Cut(field, "=")
		if name == "t" && at == "" {
			at = value
		}
		if name == "v1" {
			given = append(given, value)
		}
	}
	if !digits.MatchString(at) {
		return false
	}
	seconds, _ := strconv.ParseInt(at, 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); age.Abs() > 5*time.Minute {
		log.Printf("rejected: the timestamp is %v old; is this server's clock right?", age)
		return false
	}
	digest := hmac.New(sha256.New, secret)
	digest.Write([]byte(at + "."))
	digest.Write(body)
	expected := []byte(hex.EncodeToString(digest.Sum(nil)))
	for _, value := range given {
		if hmac.Equal([]byte(value), expected) {
			return true
		}
	}
	return false
}

func work(received event) {
	fmt.Println(received.Type, received.ID)
}
